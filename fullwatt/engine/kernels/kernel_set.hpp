#pragma once

#include <array>
#include <span>

#include <torch/custom_class.h>

#include "fullwatt/base/error.hpp"
#include "fullwatt/engine/config.hpp"

namespace fullwatt::engine {

/// Kernels that are compiled where they run: their text, which lives for ever, and what they are called.
struct KernelSource {
  const char* text;
  std::span<const char* const> names;
};

/// The kernels of one source for one device and one type of numbers.
class KernelSet : public torch::CustomClassHolder {
 public:
  struct Blocks {
    std::int64_t x = 1;
    std::int64_t y = 1;
    std::int64_t threads = 1;  ///< of each
  };

  /// Compiles them for a GPU; once for each, since a process may train several times. The error says why there are
  /// none.
  static base::Result<c10::intrusive_ptr<KernelSet>> make(const KernelSource& source, at::Device device,
                                                          at::ScalarType numbers);

  KernelSet(at::Device device, at::ScalarType numbers, std::int64_t processors)
      : device_(device), numbers_(numbers), processors_(processors) {}

  at::Device device() const { return device_; }
  at::ScalarType numbers() const { return numbers_; }
  std::int64_t processors() const { return processors_; }
  /// Numbers that a thread reads at once.
  std::int64_t wide() const { return kAlignment / static_cast<std::int64_t>(c10::elementSize(numbers_)); }
  /// Whether a tensor is on their device, of their type, and begins where a thread can read so many at once.
  bool can_read(const at::Tensor& tensor) const {
    return tensor.device() == device_ && tensor.scalar_type() == numbers_ &&
           reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % kAlignment == 0;
  }

  /// On the current stream. `kernel` counts as the source's names do; the arguments must be of the kernel's own types.
  template <class Kernel, class... Arguments>
  void launch(Kernel kernel, const Blocks& blocks, Arguments... arguments) const {
    std::array<void*, sizeof...(arguments)> places{static_cast<void*>(&arguments)...};
    run(static_cast<std::size_t>(kernel), blocks, places.data());
  }

 private:
  static constexpr std::int64_t kAlignment = 16;  // bytes

  virtual void run(std::size_t kernel, const Blocks& blocks, void** arguments) const = 0;

  at::Device device_;
  at::ScalarType numbers_;
  std::int64_t processors_;
};

/// The type of activations.
inline at::ScalarType numbers_in(Precision precision) {
  if (precision == Precision::fp32) return at::kFloat;
  return precision == Precision::fp16 ? at::kHalf : at::kBFloat16;
}

}  // namespace fullwatt::engine
