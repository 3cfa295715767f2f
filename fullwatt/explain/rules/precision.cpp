// In which numbers the GPU computes, against what its tensor cores can.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/explain/machine_facts.hpp"
#include "fullwatt/explain/rules/kernel_facts.hpp"
#include "fullwatt/explain/rules/lines.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

constexpr std::string_view kMatmul = "gpu-matmul";
constexpr std::string_view kConvolution = "gpu-convolution";
constexpr std::string_view kElementwise = "gpu-elementwise";

bool slow_fp32(const KernelUse& kernel) {
  return kernel.kind.precision == "fp32" && !kernel.kind.tensor_cores;
}
bool fp32_matmul(const KernelUse& kernel) {
  return slow_fp32(kernel) && kernel.kind.kind == "matmul";
}
bool fp32_convolution(const KernelUse& kernel) {
  return slow_fp32(kernel) && kernel.kind.kind == "convolution";
}

/// How many times as fast tensor cores are on paper; 1 where the card is not known.
double ratio(const Case& examined, std::string_view fast, std::string_view slow) {
  if (!examined.evidence.peaks) return 1;
  const auto high = examined.evidence.peaks->peak(fast);
  const auto low = examined.evidence.peaks->peak(slow);
  return high && low && *low > 0 ? *high / *low : 1;
}

/// What is promised of a ratio on paper: GeForce cards have TF32 at the rate of FP32, professional ones at twice.
std::optional<double> kept(double on_paper, std::string_view id) {
  if (on_paper < 1.5) return std::nullopt;
  return on_paper < 4 ? std::max(keeps(id), 0.75) : keeps(id);
}

Matches without_tf32(const Case& examined, std::string_view id, const KernelTest& test, const model::Site& site) {
  const auto kernels = kernels_where(examined, test);
  const auto left = kept(ratio(examined, "tf32", "fp32"), id);
  if (kernels.ms <= 0 || !left) return {};
  Match match;
  match.near({site});
  match.costs(kernels.ms, examined.gain(scaled_where(examined, test, *left)), examined.step_ms());
  match.fact("gpu", name_of(examined.gpu));
  match.saw("kernels in fp32 without tensor cores", ms_text(kernels.ms) + " ms of a step",
            base::printable(kernels.longest, 80));
  return {match};
}

Matches tf32_off(const Case& examined) {
  if (examined.facts().flag("matmul.allow_tf32") == true) return {};
  auto matches = without_tf32(
      examined, "tf32-off", fp32_matmul,
      set_or_spent(examined, {"set_float32_matmul_precision", "matmul.allow_tf32", "matmul.fp32_precision"}, kMatmul));
  for (auto& match : matches) {
    match.severity = model::Severity::note;
    if (const auto precision = examined.facts().setting("matmul.precision"))
      match.saw("float32_matmul_precision", *precision, "settings in force");
  }
  return matches;
}

Matches cudnn_tf32_off(const Case& examined) {
  if (examined.facts().flag("cudnn.allow_tf32") != false) return {};
  auto matches = without_tf32(examined, "cudnn-tf32-off", fp32_convolution,
                              set_or_spent(examined, {"cudnn.allow_tf32"}, kConvolution));
  for (auto& match : matches) match.saw("cudnn.allow_tf32", "false", "settings in force");
  return matches;
}

bool autocast_on(const Case& examined) {
  return std::ranges::any_of(examined.facts().autocasts, &AutocastFact::enabled);
}

std::string_view half_type(const Case& examined) {
  const auto& peaks = examined.evidence.peaks;
  if (!peaks) return {};
  if (peaks->peak("bf16").value_or(0) > 0) return "bf16";
  return peaks->peak("fp16").value_or(0) > 0 ? "fp16" : std::string_view{};
}

/// Products in fp32 gain much, those already in TF32 little.
Matches mixed_precision_off(const Case& examined) {
  const auto half = half_type(examined);
  if (half.empty() || autocast_on(examined)) return {};
  const auto in = [](std::string_view precision) {
    return [precision](const KernelUse& kernel) { return multiplies(kernel) && kernel.kind.precision == precision; };
  };
  const auto fp32 = kernels_where(examined, in("fp32"));
  const auto tf32 = kernels_where(examined, in("tf32"));
  const bool mostly_fp32 = fp32.ms >= tf32.ms;
  const double on_paper = ratio(examined, half, mostly_fp32 ? "fp32" : "tf32");
  if (fp32.ms + tf32.ms <= 0 || on_paper < 1.5) return {};
  constexpr double kLeftOfTf32 = 0.75;
  auto change = scaled_where(examined, in("fp32"), keeps("mixed-precision-off"));
  change += scaled_where(examined, in("tf32"), kLeftOfTf32);
  Match match;
  match.near({call_of_model(examined), main_line(examined, kMatmul), main_line(examined, kConvolution)});
  match.costs(fp32.ms + tf32.ms, examined.gain(change), examined.step_ms());
  match.fact("dtype", mostly_fp32 ? "fp32" : "tf32").fact("expected", std::string(half));
  match.fact("gpu", name_of(examined.gpu)).fact("value", number_text(on_paper));
  return {match.saw("matrix products and convolutions",
                    fmt::format("{} ms in fp32, {} ms in tf32", ms_text(fp32.ms), ms_text(tf32.ms)), "CUPTI")};
}

const AutocastFact* autocast_with(const Case& examined, std::string_view dtype) {
  for (const auto& fact : examined.facts().autocasts) {
    if (fact.enabled && fact.device.starts_with("cuda") && base::contains(fact.dtype, dtype) &&
        (dtype != "float16" || !base::contains(fact.dtype, "bfloat16"))) {
      return &fact;
    }
  }
  return nullptr;
}

Matches fp16_without_scaler(const Case& examined) {
  const auto* autocast = autocast_with(examined, "float16");
  const auto& scaler = examined.facts().scaler;
  if (autocast == nullptr || (scaler && scaler->enabled)) return {};
  Match match;
  match.at(autocast->site).saw("autocast", autocast->dtype, place_of(autocast->site));
  return {match.saw("GradScaler", scaler ? "made, not enabled" : "none")};
}

Matches bf16_without_hardware(const Case& examined) {
  const auto* autocast = autocast_with(examined, "bfloat16");
  const auto capability = examined.gpu.capability;
  if (autocast == nullptr || capability.empty() || base::Version(capability) >= base::Version("8.0")) return {};
  const auto kernels = kernels_where(examined, multiplies);
  Match match;
  match.at(autocast->site)
      .costs(kernels.ms, examined.gain(scaled_where(examined, multiplies, keeps("bf16-without-hardware"))),
             examined.step_ms());
  match.fact("gpu", name_of(examined.gpu)).fact("value", capability);
  return {match.saw("autocast", autocast->dtype, place_of(autocast->site)).saw("compute capability", capability)};
}

/// On a CPU, where no kernels are seen, a model in float64 computes all of its step in it.
Matches float64_on_cpu(const Case& examined) {
  constexpr double kLeft = 0.6;  // linear layers in float32 took 0.58 of their time in float64, convolutions 0.2
  const auto* model = examined.facts().largest_model();
  if (model == nullptr || examined.facts().on_gpu()) return {};
  double all = 0;
  for (const auto& [type, count] : model->dtypes) all += count;
  const auto doubles = model->dtypes.find("float64");
  if (doubles == model->dtypes.end() || doubles->second < all / 2) return {};
  const double computing = on_cpu_ms(examined);
  Match match;
  match.near({set_at(examined.source, {"double", "set_default_dtype"}), call_of_model(examined)});
  match.costs(computing, (1 - kLeft) * computing, examined.step_ms()).fact("name", model->class_name);
  return {match.saw("parameters in float64", number_text(doubles->second), model->class_name)};
}

Matches float64(const Case& examined) {
  if (!examined.on_gpu()) return float64_on_cpu(examined);
  const KernelTest doubles = [](const KernelUse& kernel) { return kernel.kind.precision == "fp64"; };
  const auto kernels = kernels_where(examined, doubles);
  if (kernels.ms <= 0) return {};
  Match match;
  match.near({set_or_spent(examined, {"double", "set_default_dtype"}, kMatmul), main_line(examined, kElementwise)});
  match.costs(kernels.ms, examined.gain(scaled_where(examined, doubles, keeps("float64-in-step"))), examined.step_ms());
  match.fact("name", base::printable(kernels.longest, 60));
  match.saw("kernels in fp64", fmt::format("{} a step, {} ms", number_text(kernels.count), ms_text(kernels.ms)),
            "CUPTI");
  if (const auto type = examined.facts().setting("default_dtype"))
    match.saw("default dtype", *type, "settings in force");
  return {match};
}

/// The half-precision products, by their sizes. What they share of the operations they have of the time, at least: it
/// is the slower ones that are meant.
Matches sizes_not_aligned(const Case& examined) {
  const auto& flops = examined.facts().flops;
  if (!flops || flops->unaligned.empty()) return {};
  const auto& largest = *std::ranges::max_element(flops->unaligned, {}, &UnalignedFact::flops);
  double products = 0;
  for (const auto* operation : {"mm", "bmm", "addmm", "addbmm", "baddbmm", "_addmm_activation"}) {
    const auto at = flops->by_op.find(operation);
    products += at == flops->by_op.end() ? 0 : at->second;
  }
  const KernelTest half = [](const KernelUse& kernel) {
    return kernel.kind.kind == "matmul" && (kernel.kind.precision == "fp16" || kernel.kind.precision == "bf16");
  };
  const auto kernels = kernels_where(examined, half);
  if (products <= 0 || kernels.ms <= 0) return {};
  const double share = std::min(1.0, largest.flops / products);
  Match match;
  match.near({main_line(examined, kMatmul), call_of_model(examined)});
  const auto change = scaled_where(examined, half, 1 - share * (1 - keeps("dims-not-aligned")));
  match.costs(kernels.ms * share, examined.gain(change), examined.step_ms());
  match.fact("name", largest.sizes).fact("dtype", largest.dtype == "float16" ? "fp16" : "bf16");
  return {match.saw("rows that do not begin at 16 bytes", percent(share) + " % of the products", largest.sizes)};
}

/// CUTLASS writes into the name how many elements a load may take at once; eight of 16 bits are the full width.
Matches dims_not_aligned(const Case& examined) {
  const KernelTest unaligned = [](const KernelUse& kernel) {
    const bool half = kernel.kind.precision == "fp16" || kernel.kind.precision == "bf16";
    const auto name = base::lower(kernel.name);
    return half && kernel.kind.kind == "matmul" &&
           (base::contains(name, "align1") || base::contains(name, "align2") || base::contains(name, "align4")) &&
           !base::contains(name, "align16");
  };
  const auto kernels = kernels_where(examined, unaligned);
  if (kernels.ms <= 0) return sizes_not_aligned(examined);
  Match match;
  match.near({main_line(examined, kMatmul)});
  match.costs(kernels.ms, examined.gain(scaled_where(examined, unaligned, keeps("dims-not-aligned"))),
              examined.step_ms());
  match.fact("name", base::printable(kernels.longest, 60));
  match.fact("dtype", base::contains(base::lower(kernels.longest), "bf16") ? "bf16" : "fp16");
  return {match.saw("kernels for unaligned sizes", number_text(kernels.count) + " a step",
                    base::printable(kernels.longest, 80))};
}

constexpr std::array kRules{
    Rule{"tf32-off", tf32_off},
    Rule{"cudnn-tf32-off", cudnn_tf32_off},
    Rule{"mixed-precision-off", mixed_precision_off},
    Rule{"fp16-without-scaler", fp16_without_scaler},
    Rule{"bf16-without-hardware", bf16_without_hardware},
    Rule{"float64-in-step", float64},
    Rule{"dims-not-aligned", dims_not_aligned},
};

}  // namespace

std::span<const Rule> precision_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
