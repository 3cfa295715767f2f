#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

#include "fullwatt/engine/kernels/kernel_set.hpp"

// Before kernels are used they are held against torch's own on small problems.

namespace fullwatt::engine {

/// Numbers of both signs about 0.3, without drawing any, on the kernels' device and of their type.
at::Tensor waves(at::IntArrayRef sizes, double length, const KernelSet& kernels);

/// The error says what is not torch's, but for rounding.
base::Result<void> compare(const KernelSet& kernels, const char* what, const at::Tensor& ours,
                           const at::Tensor& torchs);

/// Kernels that do not take the problem that was made for them.
std::unexpected<base::Error> refuse_their_problem();

/// What a look at them found, with gradients on; where torch or the device cannot go on, that is the error.
base::Result<void> verified(const std::function<base::Result<void>()>& look);

}  // namespace fullwatt::engine
