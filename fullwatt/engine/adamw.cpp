#include "fullwatt/engine/adamw.hpp"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace fullwatt::engine {
namespace {

/// Parameters that got a gradient, and where they stand.
struct Used {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<std::size_t> places;

  explicit Used(const std::vector<at::Tensor>& all) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].grad().defined()) continue;
      parameters.push_back(all[i]);
      gradients.push_back(all[i].grad());
      places.push_back(i);
    }
  }
  std::vector<at::Tensor> of(const std::vector<at::Tensor>& all) const {
    std::vector<at::Tensor> found;
    for (const auto place : places) found.push_back(all[place]);
    return found;
  }
};

}  // namespace

AdamW::AdamW(std::vector<at::Tensor> parameters, const OptimizerConfig& config)
    : parameters_(std::move(parameters)), config_(config) {
  for (const auto& parameter : parameters_) {
    state_.means.push_back(at::zeros_like(parameter));
    state_.squares.push_back(at::zeros_like(parameter));
    state_.steps.push_back(at::zeros({}, parameter.options().dtype(at::kFloat)));
  }
}

void AdamW::step() {
  const at::NoGradGuard without_gradients;
  const Used used(parameters_);
  if (used.places.empty()) return;
  const auto steps = used.of(state_.steps);
  at::_foreach_add_(steps, 1);
  at::_fused_adamw_(used.parameters, used.gradients, used.of(state_.means), used.of(state_.squares), {}, steps,
                    config_.lr, config_.beta1, config_.beta2, config_.weight_decay, config_.epsilon, false, false);
}

void AdamW::forget_gradients() {
  for (auto& parameter : parameters_) parameter.mutable_grad().reset();
}

at::Tensor clip_gradients(const std::vector<at::Tensor>& parameters, double limit) {
  constexpr double kNotZero = 1e-6;  // as PyTorch has it
  const at::NoGradGuard without_gradients;
  const Used used(parameters);
  if (used.places.empty()) return at::zeros({});
  const auto norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(used.gradients)));
  at::_foreach_mul_(used.gradients, (limit / (norm + kNotZero)).clamp_max(1));
  return norm;
}

}  // namespace fullwatt::engine
