#pragma once

#include "tests/engine/kernels_on_cpu.hpp"

#include "fullwatt/engine/norm_kernels.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused"
#define FULLWATT_NORM_KERNELS                                                           \
  inline const std::vector<Launch>& norm_kernels() {                                    \
    static const std::vector<Launch> kAll{launch_of(batch_norm_sums),                   \
                                          launch_of(batch_norm_statistics),             \
                                          launch_of(batch_norm_forward),                \
                                          launch_of(batch_norm_relu_forward),           \
                                          launch_of(batch_norm_add_forward),            \
                                          launch_of(batch_norm_add_relu_forward),       \
                                          launch_of(batch_norm_gradient_sums),          \
                                          launch_of(batch_norm_relu_gradient_sums),     \
                                          launch_of(batch_norm_add_relu_gradient_sums), \
                                          launch_of(batch_norm_gradients),              \
                                          launch_of(batch_norm_backward),               \
                                          launch_of(batch_norm_relu_backward)};         \
    return kAll;                                                                        \
  }
namespace fullwatt::tests::of_float {
#define NUMBER Float
#include "fullwatt/engine/fused_norm.cu"
FULLWATT_NORM_KERNELS
}  // namespace fullwatt::tests::of_float
#undef NUMBER
#undef DEVICE
#undef KERNEL
#undef UNROLL
#undef FORWARD
#undef GRADIENT_SUMS
#undef BACKWARD
namespace fullwatt::tests::of_bfloat16 {
#define NUMBER Bfloat16
#include "fullwatt/engine/fused_norm.cu"
FULLWATT_NORM_KERNELS
}  // namespace fullwatt::tests::of_bfloat16
#undef NUMBER
#undef DEVICE
#undef KERNEL
#undef UNROLL
#undef FORWARD
#undef GRADIENT_SUMS
#undef BACKWARD
namespace fullwatt::tests::of_half {
#define NUMBER Half
#include "fullwatt/engine/fused_norm.cu"
FULLWATT_NORM_KERNELS
}  // namespace fullwatt::tests::of_half
#pragma GCC diagnostic pop

namespace fullwatt::tests {

/// The kernels' own source, run by the CPU.
class NormKernelsOnCpu final : public engine::NormKernels {
 public:
  static constexpr std::int64_t kProcessors = 2;  // several blocks, and more rows than they take at once

  explicit NormKernelsOnCpu(at::ScalarType numbers) : NormKernels(at::kCPU, numbers, kProcessors) {}

 private:
  void run(engine::NormKernel kernel, const Blocks& blocks, void** arguments) const override {
    const auto& all = numbers() == at::kFloat      ? of_float::norm_kernels()
                      : numbers() == at::kBFloat16 ? of_bfloat16::norm_kernels()
                                                   : of_half::norm_kernels();
    all.at(static_cast<std::size_t>(kernel))(static_cast<unsigned>(blocks.x), static_cast<unsigned>(blocks.y),
                                             static_cast<unsigned>(blocks.threads), arguments);
  }
};

}  // namespace fullwatt::tests
