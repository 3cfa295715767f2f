#pragma once

#include <ATen/core/Tensor.h>

#include "fullwatt/engine/config.hpp"

namespace fullwatt::engine {

/// What becomes of pictures on the device before a network sees them: changed at random, each in its own way, then
/// normalised. Random numbers come from the device's generator, and nothing waits for the device, so that a CUDA graph
/// can hold it. Pictures are [samples, channels, height, width].
class Augmentation {
 public:
  Augmentation(const AugmentConfig& config, const Normalisation& normalisation, at::Device device);

  /// Flipped and shifted; of any type.
  at::Tensor moved(const at::Tensor& pictures) const;
  /// Brightness, contrast and noise, then normalised; of float32. `is_limited`: they stay from 0 to 1 until then, as
  /// pictures of bytes do.
  at::Tensor coloured(const at::Tensor& pictures, bool is_limited) const;

 private:
  AugmentConfig config_;
  at::Tensor mean_;  ///< of channels; none where pictures stay as they are
  at::Tensor deviation_;
};

}  // namespace fullwatt::engine
