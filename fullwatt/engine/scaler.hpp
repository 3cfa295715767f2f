#pragma once

#include "fullwatt/engine/optimizer.hpp"

namespace fullwatt::engine {

/// Keeps small gradients of half precision from vanishing, as PyTorch's GradScaler: losses are multiplied, gradients
/// divided; where one overflows the step is left out and the factor halved. Decided on the device, nothing waits.
class Scaler {
 public:
  explicit Scaler(at::Device device);

  at::Tensor scaled(const at::Tensor& loss) const { return loss.mul(scale_); }
  /// Divides the gradients again and looks at them: 1 where one is no number.
  at::Tensor unscale(const std::vector<at::Tensor>& gradients);
  /// After the step: a smaller factor where it was left out, a larger one after many that were not.
  void update();
  /// Waits for the device.
  double factor() const { return scale_.item<double>(); }
  Named state() const { return {{"scaler.scale", scale_}, {"scaler.growth", growth_}}; }

 private:
  at::Tensor scale_;
  at::Tensor growth_;  ///< steps since the factor changed
  at::Tensor overflowed_;
};

}  // namespace fullwatt::engine
