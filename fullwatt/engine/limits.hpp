#pragma once

#include <functional>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "fullwatt/base/error.hpp"

namespace fullwatt::engine {

/// Of fields whose numbers count something, from 0 to below this: labels, tokens.
using Limits = std::map<std::string, std::int64_t>;
/// Names a sample of a batch, by the field that is wrong and its place in the batch.
using NameSample = std::function<std::string(const std::string& field, std::int64_t place)>;

/// Refuses numbers beyond their limit with the sample that holds them. Fields on a device pass: to look at them would
/// be to wait for it.
base::Result<void> check_limits(const std::map<std::string, at::Tensor>& batch, const Limits& limits,
                                const NameSample& name_sample);

}  // namespace fullwatt::engine
