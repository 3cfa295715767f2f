#include "fullwatt/engine/limits.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/aminmax.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::engine {
namespace {

bool is_within(const at::Tensor& numbers, std::int64_t limit) {
  const auto [least, most] = numbers.aminmax();
  return least.item<std::int64_t>() >= 0 && most.item<std::int64_t>() < limit;
}

}  // namespace

base::Result<void> check_limits(const std::map<std::string, at::Tensor>& batch, const Limits& limits,
                                const NameSample& name_sample) {
  for (const auto& [name, limit] : limits) {
    const auto field = batch.find(name);
    if (field == batch.end() || field->second.is_floating_point() || field->second.numel() == 0) continue;
    if (!field->second.device().is_cpu() || is_within(field->second, limit)) continue;
    const auto numbers = field->second.reshape({field->second.size(0), -1});
    const auto first = (numbers.lt(0) | numbers.ge(limit)).nonzero()[0];
    const auto sample = first[0].item<std::int64_t>();
    const auto wrong = numbers[sample][first[1]].item<std::int64_t>();
    return base::fail(
        base::Error::Kind::bad_input,
        name_sample(name, sample) + ": the field " + base::printable(name, 100) + " holds " + std::to_string(wrong),
        "The model takes numbers from 0 to " + std::to_string(limit - 1) +
            ": correct the data, or the limit (model.classes, model.vocabulary, data.limits).");
  }
  return {};
}

}  // namespace fullwatt::engine
