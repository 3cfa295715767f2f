#include "fullwatt/engine/optimizer.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace fullwatt::engine {
namespace {

/// As PyTorch's `AdamW(fused=True)`.
class AdamW final : public Optimizer {
 public:
  AdamW(std::vector<at::Tensor> parameters, const OptimizerConfig& config)
      : Optimizer(std::move(parameters), config.lr), config_(config) {
    keep("mean");
    keep("square");
    keep("step", true);
  }

 private:
  void step(const Used& used, const at::Tensor& rate, const std::optional<at::Tensor>& overflowed) override {
    const auto& steps = used.state[2];
    if (overflowed) {
      at::_foreach_add_(steps, 1 - *overflowed);
    } else {
      at::_foreach_add_(steps, 1);
    }
    at::_fused_adamw_(used.parameters, used.gradients, used.state[0], used.state[1], {}, steps, rate, config_.beta1,
                      config_.beta2, config_.weight_decay, config_.epsilon, false, false, {}, overflowed);
  }

  OptimizerConfig config_;
};

/// As PyTorch's `SGD(fused=True)`: a momentum of zero in the first step is its "first step".
class Sgd final : public Optimizer {
 public:
  Sgd(std::vector<at::Tensor> parameters, const OptimizerConfig& config)
      : Optimizer(std::move(parameters), config.lr), config_(config) {
    if (config_.momentum > 0) keep("momentum");
  }

 private:
  void step(const Used& used, const at::Tensor& rate, const std::optional<at::Tensor>& overflowed) override {
    const auto momenta = config_.momentum > 0 ? used.state[0] : std::vector<at::Tensor>{};
    at::_fused_sgd_(used.parameters, used.gradients, momenta, config_.weight_decay, config_.momentum, rate, 0,
                    config_.nesterov, false, false, {}, overflowed);
  }

  OptimizerConfig config_;
};

}  // namespace

Optimizer::Optimizer(std::vector<at::Tensor> parameters, double rate)
    : parameters_(std::move(parameters)), told_rate_(rate) {
  const auto options = parameters_.empty() ? at::TensorOptions() : parameters_.front().options();
  rate_ = at::full({}, rate, options.dtype(options.device().is_cpu() ? at::kDouble : at::kFloat));
}

void Optimizer::keep(const std::string& name, bool is_number) {
  std::vector<at::Tensor> tensors;
  for (const auto& parameter : parameters_) {
    tensors.push_back(is_number ? at::zeros({}, parameter.options().dtype(at::kFloat)) : at::zeros_like(parameter));
  }
  state_.emplace_back(name, std::move(tensors));
}

void Optimizer::step(const std::optional<at::Tensor>& overflowed) {
  const at::NoGradGuard without_gradients;
  Used used;
  used.state.resize(state_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].grad().defined()) continue;
    used.parameters.push_back(parameters_[i]);
    used.gradients.push_back(parameters_[i].grad());
    for (std::size_t kind = 0; kind < state_.size(); ++kind) used.state[kind].push_back(state_[kind].second[i]);
  }
  if (!used.parameters.empty()) step(used, rate_, overflowed);
}

void Optimizer::forget_gradients() {
  for (auto& parameter : parameters_) parameter.mutable_grad().reset();
}

void Optimizer::set_rate(double rate) {
  if (rate == told_rate_) return;
  rate_.fill_(rate);
  told_rate_ = rate;
}

std::vector<at::Tensor> Optimizer::gradients() const {
  std::vector<at::Tensor> found;
  for (const auto& parameter : parameters_) {
    if (parameter.grad().defined()) found.push_back(parameter.grad());
  }
  return found;
}

std::unique_ptr<Optimizer> make_optimizer(std::vector<at::Tensor> parameters, const OptimizerConfig& config) {
  if (config.name == "sgd") return std::make_unique<Sgd>(std::move(parameters), config);
  return std::make_unique<AdamW>(std::move(parameters), config);
}

at::Tensor clip_gradients(const std::vector<at::Tensor>& gradients, double limit) {
  constexpr double kNotZero = 1e-6;  // as PyTorch has it
  const at::NoGradGuard without_gradients;
  if (gradients.empty()) return at::zeros({});
  const auto norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients)));
  at::_foreach_mul_(gradients, (limit / (norm + kNotZero)).clamp_max(1));
  return norm;
}

}  // namespace fullwatt::engine
