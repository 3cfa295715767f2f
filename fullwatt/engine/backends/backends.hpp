#pragma once

#include <chrono>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "fullwatt/base/error.hpp"
#include "fullwatt/engine/place.hpp"

/// What carries tensors between processes: a file for each, since each needs headers of its own.
namespace fullwatt::engine {

using Backend = c10::intrusive_ptr<c10d::Backend>;
using Store = c10::intrusive_ptr<c10d::Store>;

/// For CPUs, by TCP.
base::Result<Backend> make_gloo(const Store& store, const Place& place, std::chrono::milliseconds timeout);
/// For GPUs; where torch has no CUDA, `nccl_none.cpp` refuses.
base::Result<Backend> make_nccl(const Store& store, const Place& place, std::chrono::milliseconds timeout);

}  // namespace fullwatt::engine
