#pragma once

#include <string>
#include <string_view>

namespace fullwatt::explain {

/// What a kernel's name tells.
struct KernelClass {
  std::string_view kind = "other";  ///< matmul, convolution, attention, elementwise, reduction, normalisation,
                                    ///< optimizer, softmax, embedding, rnn, copy, communication, other
  std::string_view precision;       ///< fp32, tf32, fp16, bf16, fp8, int8, fp64; empty where the name does not tell
  bool tensor_cores = false;

  auto operator<=>(const KernelClass&) const = default;
};

/// The name as people write it; CUPTI hands out mangled ones.
std::string kernel_text(std::string_view name);
/// The same for people: without what all of PyTorch's kernels have in common.
std::string kernel_name(std::string_view raw);
/// By the name as CUPTI gives it, mangled or not.
KernelClass classify_kernel(std::string_view name);

}  // namespace fullwatt::explain
