#include "fullwatt/engine/scaler.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

namespace fullwatt::engine {
namespace {

// PyTorch's own.
constexpr double kFirstScale = 65536;
constexpr double kGrowth = 2;
constexpr double kBackoff = 0.5;
constexpr std::int64_t kInterval = 2000;

}  // namespace

Scaler::Scaler(at::Device device)
    : scale_(at::full({}, kFirstScale, at::TensorOptions().device(device).dtype(at::kFloat))),
      growth_(at::zeros({}, at::TensorOptions().device(device).dtype(at::kInt))),
      overflowed_(at::zeros({}, at::TensorOptions().device(device).dtype(at::kFloat))) {}

at::Tensor Scaler::unscale(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard without_gradients;
  overflowed_.zero_();
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, overflowed_,
                                                 scale_.to(at::kDouble).reciprocal().to(at::kFloat));
  return overflowed_;
}

void Scaler::update() {
  const at::NoGradGuard without_gradients;
  at::_amp_update_scale_(scale_, growth_, overflowed_, kGrowth, kBackoff, kInterval);
}

}  // namespace fullwatt::engine
