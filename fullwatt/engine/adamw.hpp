#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "fullwatt/engine/config.hpp"

namespace fullwatt::engine {

/// AdamW by ATen's fused kernel: one call for all parameters, as PyTorch's `AdamW(fused=True)`.
class AdamW {
 public:
  AdamW(std::vector<at::Tensor> parameters, const OptimizerConfig& config);

  void step();
  /// The next gradients are written, not added.
  void forget_gradients();
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

  /// What a training that goes on needs again, each in the order of the parameters.
  struct State {
    std::vector<at::Tensor> means;
    std::vector<at::Tensor> squares;
    std::vector<at::Tensor> steps;
  };
  State& state() { return state_; }

 private:
  std::vector<at::Tensor> parameters_;
  OptimizerConfig config_;
  State state_;
};

/// Makes the norm of all gradients at most `limit`, without waiting for the device; gives the norm they had.
at::Tensor clip_gradients(const std::vector<at::Tensor>& parameters, double limit);

}  // namespace fullwatt::engine
