#include "fullwatt/explain/kernels.hpp"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <span>

#include <cxxabi.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::explain {
namespace {

using base::contains;
using Parts = std::span<const std::string_view>;

bool has_any(std::string_view name, Parts parts) {
  return std::ranges::any_of(parts, [&](std::string_view part) { return contains(name, part); });
}
bool has_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  return has_any(name, Parts(parts.begin(), parts.size()));
}

struct KindRule {
  std::string_view kind;
  Parts parts;
};

/// Inductor names a kernel after what it fused: pointwise, reduction, persistent reduction, or a template.
std::string_view triton_kind(std::string_view name) {
  if (has_any(name, {"layer_norm", "batch_norm", "group_norm", "rms_norm"})) return "normalisation";
  if (has_any(name, {"triton_tem_"})) return contains(name, "conv") ? "convolution" : "matmul";
  if (contains(name, "softmax")) return "softmax";
  if (has_any(name, {"triton_red_", "triton_per_"})) return "reduction";
  return "elementwise";
}

// The first that fits counts. Attention stands before softmax and convolution (its passes are called fprop too),
// recurrent layers and normalisation before the general words, layout changes before the convolutions that need them.
constexpr std::string_view kCommunication[] = {"nccl",      "rccl",       "nvshmem",       "all_reduce",
                                               "allreduce", "all_gather", "reduce_scatter"};
constexpr std::string_view kAttention[] = {"flash_fwd", "flash_bwd", "flash::",   "flashattn", "flashattention",
                                           "fmha",      "_sdpa_",    "sdpa_",     "attention", "flex_attn",
                                           "mha_fwd",   "mha_bwd",   "paged_attn"};
constexpr std::string_view kRecurrent[] = {
    "rnn_",     "elemwisernncell", "lstm_elementwise", "gru_elementwise", "lstm_cell",
    "gru_cell", "rnncell",         "persistrnn",       "lstm_",           "gru_"};
constexpr std::string_view kNormalisation[] = {
    "batch_norm",         "batchnorm", "bn_fw",   "bn_bw",          "layer_norm",
    "layernorm",          "ln_fwd",    "ln_bwd",  "ln_parallel",    "group_norm",
    "groupnorm",          "rms_norm",  "rmsnorm", "rowwisemoments", "gammabetabackward",
    "computefusedparams", "welford"};
constexpr std::string_view kLayout[] = {"nchwtonhwc",      "nhwctonchw",       "nchwaddpadding", "nhwcaddpadding",
                                        "tensortransform", "transform_tensor", "nchw_to_nhwc",   "nhwc_to_nchw"};
constexpr std::string_view kConvolution[] = {
    "fprop",       "dgrad",    "wgrad",           "conv1d", "conv2d",
    "conv3d",      "convolve", "winograd",        "scudnn", "implicit_gemm",
    "depthwise",   "im2col",   "col2im",          "fft2d",  "computeoffsetskernel",
    "convolution", "vol2col",  "implicitgemmconv"};
constexpr std::string_view kOptimizer[] = {"multi_tensor_apply", "fusedadam",      "fused_adam", "adamfunctor", "adam_",
                                           "sgdfunctor",         "fusedoptimizer", "lamb_stage", "multi_tensor"};
constexpr std::string_view kSoftmax[] = {"softmax"};
constexpr std::string_view kEmbedding[] = {
    "embedding",      "indexselect",         "index_select", "index_elementwise", "indexfunc",
    "scatter_gather", "vectorized_gather",   "index_put",    "indexing_backward", "gather",
    "scatter",        "compute_grad_weight", "indexkernel",  "index_kernel"};
constexpr std::string_view kMatmul[] = {"gemm",      "gemv",       "nvjet",  "splitk", "cutlass::kernel",
                                        "cutlass_",  "cutlass3x",  "s16816", "s1688",  "matmul",
                                        "xmma",      "dot_kernel", "bmm_",   "trsm",   "syrk",
                                        "_scaled_mm"};
constexpr std::string_view kCopy[] = {
    "direct_copy_kernel", "catarraybatchedcopy", "copy_kernel", "chunk_cat", "transpose", "memcpy", "copy_device"};
constexpr std::string_view kReduction[] = {"reduce", "argmax", "argmin", "devicescan", "cumsum", "nll_loss"};
constexpr std::string_view kElementwise[] = {"elementwise",       "fillfunctor", "dropout",
                                             "distribution_",     "pointwise",   "scalepackedtensor",
                                             "op_generic_tensor", "addtensor",   "tensor_kernel_scan",
                                             "triu_tril",         "arange",      "activation"};

constexpr KindRule kRules[] = {{"communication", kCommunication},
                               {"attention", kAttention},
                               {"rnn", kRecurrent},
                               {"normalisation", kNormalisation},
                               {"copy", kLayout},
                               {"convolution", kConvolution},
                               {"optimizer", kOptimizer},
                               {"softmax", kSoftmax},
                               {"embedding", kEmbedding},
                               {"matmul", kMatmul},
                               {"copy", kCopy},
                               {"reduction", kReduction},
                               {"elementwise", kElementwise}};

std::string_view kind_of(std::string_view name) {
  if (name.starts_with("triton_")) return triton_kind(name);
  for (const auto& rule : kRules) {
    if (has_any(name, rule.parts)) return rule.kind;
  }
  return "other";
}

/// nvjet, cuBLAS's generator, spells the types of A, C and D: h fp16, t bf16, q fp8, s fp32, which it computes as TF32.
std::string_view nvjet_precision(std::string_view name) {
  auto types = name.substr(name.find("nvjet_") + 6);
  if (types.starts_with("sm")) types.remove_prefix(std::min(types.find('_') + 1, types.size()));
  if (types.starts_with("h")) return "fp16";
  if (types.starts_with("t")) return "bf16";
  if (types.starts_with("q")) return "fp8";
  return types.starts_with("s") ? "tf32" : std::string_view{};
}

/// PyTorch hands learning rates and limits to its kernels as doubles, whatever they compute in: only what a kernel is
/// made for, what its functions take, and what it points at tell.
bool computes_in_double(std::string_view name) {
  return has_any(name,
                 {"f64", "dgemm", "dgemv", "d884", "d1684", "<double", "lambda(double", "double*", "double const*"});
}

std::string_view precision_of(std::string_view name) {
  if (contains(name, "nvjet_")) return nvjet_precision(name);
  // The attention that cuDNN generates is called f16 for both 16-bit types.
  if (contains(name, "native_sdpa")) return contains(name, "bf16") ? "bf16" : std::string_view{};
  if (has_any(name, {"e4m3", "e5m2", "_f8_", "fp8", "float8"})) return "fp8";
  if (has_any(name, {"i8i8", "gemm_s8", "_s8_", "imma", "int8", "i16832"})) return "int8";
  if (has_any(name, {"tf32"})) return "tf32";
  if (has_any(name, {"bf16", "bfloat16"})) return "bf16";
  if (has_any(name, {"f16", "fp16", "half", "h884", "h1688", "h16816", "hmma"})) return "fp16";
  if (has_any(name, {"s1688"})) return "tf32";
  if (computes_in_double(name)) return "fp64";
  if (has_any(name, {"f32", "sgemm", "sgemv", "scudnn", "float", "simt"})) return "fp32";
  return {};
}

bool uses_tensor_cores(std::string_view name, std::string_view kind, std::string_view precision) {
  if (kind == "attention") return true;
  if (kind == "rnn") return has_any(name, {"hmma", "tensorop"});
  if (kind != "matmul" && kind != "convolution") return false;
  if (has_any(name, {"simt", "gemv"})) return false;
  if (has_any(name, {"tensorop", "nvjet", "wgmma", "s1688", "s16816", "s884", "h884", "h1688", "h16816", "i16832",
                     "d884", "imma", "hmma", "tensor16x8", "warpgroup"})) {
    return true;
  }
  return contains(name, "xmma") && precision != "fp32" && !precision.empty();
}

}  // namespace

std::string kernel_text(std::string_view name) {
  if (!name.starts_with("_Z")) return std::string(name);
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(std::string(name).c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? std::string(text.get()) : std::string(name);
}

std::string kernel_name(std::string_view raw) {
  auto name = kernel_text(raw);
  for (const std::string_view common : {"void ", "at::native::", "(anonymous namespace)::"}) {
    for (auto at = name.find(common); at != std::string::npos; at = name.find(common, at))
      name.erase(at, common.size());
  }
  return name;
}

KernelClass classify_kernel(std::string_view raw) {
  const auto name = base::lower(kernel_text(raw));
  KernelClass found;
  found.kind = kind_of(name);
  found.precision = precision_of(name);
  found.tensor_cores = uses_tensor_cores(name, found.kind, found.precision);
  return found;
}

}  // namespace fullwatt::explain
