#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "fullwatt/engine/config.hpp"

namespace fullwatt::engine {

/// Tensors by the names under which they are stored.
using Named = std::vector<std::pair<std::string, at::Tensor>>;

/// Makes a step of all parameters by one of ATen's fused kernels. Nothing in it waits for the device, and all that
/// changes from step to step lies in tensors there, so that a graph can hold it.
class Optimizer {
 public:
  Optimizer(std::vector<at::Tensor> parameters, double rate);
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// Where `overflowed` is given and holds 1, nothing is changed.
  void step(const std::optional<at::Tensor>& overflowed = {});
  /// The next gradients are written, not added.
  void forget_gradients();
  void set_rate(double rate);
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  /// Of the parameters that got one.
  std::vector<at::Tensor> gradients() const;
  /// What a training that goes on needs again: a name and, in the order of the parameters, its tensors.
  const std::vector<std::pair<std::string, std::vector<at::Tensor>>>& state() const { return state_; }

 protected:
  /// Parameters that got a gradient, their gradients, and the parts of the state that belong to them.
  struct Used {
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> gradients;
    std::vector<std::vector<at::Tensor>> state;
  };
  virtual void step(const Used& used, const at::Tensor& rate, const std::optional<at::Tensor>& overflowed) = 0;
  /// One more tensor for every parameter, of its shape or a single number, all zero.
  void keep(const std::string& name, bool is_number = false);

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<std::pair<std::string, std::vector<at::Tensor>>> state_;
  at::Tensor rate_;
  double told_rate_;
};

std::unique_ptr<Optimizer> make_optimizer(std::vector<at::Tensor> parameters, const OptimizerConfig& config);

/// Makes the norm of all gradients at most `limit`, without waiting for the device; gives the norm they had.
at::Tensor clip_gradients(const std::vector<at::Tensor>& gradients, double limit);

}  // namespace fullwatt::engine
