#pragma once

#include "tests/engine/kernels_on_cpu.hpp"

#include "fullwatt/engine/kernels/kernel_set.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused"
#define NUMBER Float
namespace fullwatt::tests::of_float {
#include "tests/engine/kernel_sources_on_cpu.inl"
}  // namespace fullwatt::tests::of_float
#undef NUMBER
#define NUMBER Bfloat16
namespace fullwatt::tests::of_bfloat16 {
#include "tests/engine/kernel_sources_on_cpu.inl"
}  // namespace fullwatt::tests::of_bfloat16
#undef NUMBER
#define NUMBER Half
namespace fullwatt::tests::of_half {
#include "tests/engine/kernel_sources_on_cpu.inl"
}  // namespace fullwatt::tests::of_half
#undef NUMBER
#pragma GCC diagnostic pop

namespace fullwatt::tests {

/// The kernels' own source, run by the CPU.
class KernelSetOnCpu final : public engine::KernelSet {
 public:
  static constexpr std::int64_t kProcessors = 2;  // several blocks, and more rows than they take at once

  KernelSetOnCpu(at::ScalarType numbers, const std::vector<Launch>& kernels)
      : KernelSet(at::kCPU, numbers, kProcessors), kernels_(&kernels) {}

 private:
  void run(std::size_t kernel, const Blocks& blocks, void** arguments) const override {
    kernels_->at(kernel)(static_cast<unsigned>(blocks.x), static_cast<unsigned>(blocks.y),
                         static_cast<unsigned>(blocks.threads), arguments);
  }

  const std::vector<Launch>* kernels_;
};

inline c10::intrusive_ptr<engine::KernelSet> norm_kernels_on_cpu(at::ScalarType numbers) {
  return c10::make_intrusive<KernelSetOnCpu>(numbers, numbers == at::kFloat      ? of_float::norm::kAll
                                                      : numbers == at::kBFloat16 ? of_bfloat16::norm::kAll
                                                                                 : of_half::norm::kAll);
}

inline c10::intrusive_ptr<engine::KernelSet> loss_kernels_on_cpu(at::ScalarType numbers) {
  return c10::make_intrusive<KernelSetOnCpu>(numbers, numbers == at::kFloat      ? of_float::loss::kAll
                                                      : numbers == at::kBFloat16 ? of_bfloat16::loss::kAll
                                                                                 : of_half::loss::kAll);
}

/// Kernels that do nothing.
class IdleKernels final : public engine::KernelSet {
 public:
  IdleKernels() : KernelSet(at::kCPU, at::kFloat, 1) {}

 private:
  void run(std::size_t, const Blocks&, void**) const override {}
};

/// Where kernels are tried, and for which numbers.
struct KernelCase {
  at::DeviceType device;
  at::ScalarType numbers;
};

inline void PrintTo(const KernelCase& given, std::ostream* out) {
  *out << at::DeviceTypeName(given.device, true) << ' ' << given.numbers;
}

inline std::vector<KernelCase> kernel_cases() {
  std::vector<KernelCase> all;
  for (const auto device : {at::kCPU, at::kCUDA}) {
    for (const auto numbers : {at::kFloat, at::kBFloat16, at::kHalf}) all.push_back({device, numbers});
  }
  return all;
}

inline std::string name_of(const KernelCase& given) {
  return at::DeviceTypeName(given.device, true) + "_" + c10::toString(given.numbers);
}

/// Half of the distance to the next number, for a number of 1.
inline double rounding_of(at::ScalarType numbers) {
  if (numbers == at::kFloat) return 0x1p-24;
  return numbers == at::kHalf ? 0x1p-11 : 0x1p-8;
}

}  // namespace fullwatt::tests
