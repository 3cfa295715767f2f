#pragma once

#include <array>

#include <torch/custom_class.h>

#include "fullwatt/base/error.hpp"

namespace fullwatt::engine {

/// Of fused_norm.cu, in the order of `kNormKernelNames`.
enum class NormKernel : std::uint8_t {
  sums,
  statistics,
  forward,
  relu_forward,
  add_forward,
  add_relu_forward,
  gradient_sums,
  relu_gradient_sums,
  add_relu_gradient_sums,
  gradients,
  backward,
  relu_backward,
};
inline constexpr std::array kNormKernelNames{
    "batch_norm_sums",          "batch_norm_statistics",         "batch_norm_forward",
    "batch_norm_relu_forward",  "batch_norm_add_forward",        "batch_norm_add_relu_forward",
    "batch_norm_gradient_sums", "batch_norm_relu_gradient_sums", "batch_norm_add_relu_gradient_sums",
    "batch_norm_gradients",     "batch_norm_backward",           "batch_norm_relu_backward"};

/// The kernels of fused_norm.cu for one device and one type of numbers.
class NormKernels : public torch::CustomClassHolder {
 public:
  struct Blocks {
    std::int64_t x = 1;
    std::int64_t y = 1;
    std::int64_t threads = 1;  ///< of each
  };

  /// Compiles them for a GPU; once for each, since a process may train several times. The error says why there are
  /// none.
  static base::Result<c10::intrusive_ptr<NormKernels>> make(at::Device device, at::ScalarType numbers);

  NormKernels(at::Device device, at::ScalarType numbers, std::int64_t processors)
      : device_(device), numbers_(numbers), processors_(processors) {}

  at::Device device() const { return device_; }
  at::ScalarType numbers() const { return numbers_; }
  std::int64_t processors() const { return processors_; }
  /// Numbers that a thread reads at once: channels must be a multiple.
  std::int64_t wide() const { return 16 / static_cast<std::int64_t>(c10::elementSize(numbers_)); }

  /// On the current stream. The arguments must be of the kernel's own types.
  template <class... Arguments>
  void launch(NormKernel kernel, const Blocks& blocks, Arguments... arguments) const {
    std::array<void*, sizeof...(arguments)> places{static_cast<void*>(&arguments)...};
    run(kernel, blocks, places.data());
  }

 private:
  virtual void run(NormKernel kernel, const Blocks& blocks, void** arguments) const = 0;

  at::Device device_;
  at::ScalarType numbers_;
  std::int64_t processors_;
};

}  // namespace fullwatt::engine
