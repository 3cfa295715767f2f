// What the GPU spends its time on that could be done with less.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/rules/kernel_facts.hpp"
#include "fullwatt/explain/rules/lines.hpp"
#include "fullwatt/explain/rules/rule.hpp"

namespace fullwatt::explain {
namespace {

/// The call that asks for zeros instead of none.
model::Site filling_call(const SourceFacts& source) {
  for (const auto& file : source.files) {
    for (const auto& call : file.calls) {
      const auto asked = call.keywords.find("set_to_none");
      const bool zeros = asked != call.keywords.end() && base::lower(asked->second) == "false";
      if (zeros && base::contains(call.name, "zero_grad")) return {file.path, call.line, call.function};
    }
  }
  return {};
}

/// The backward pass adds to gradients that are there, one kernel for each parameter; those that are not it only
/// writes.
struct Additions {
  KernelTest test = [](const KernelUse& kernel) { return base::contains(kernel.name, "CUDAFunctor_add"); };
  double share = 0;     ///< of such kernels that add to gradients
  double ms = 0;        ///< of a step, of the GPU
  double launches = 0;  ///< share of those of the backward pass
};

Additions additions(const Case& examined) {
  Additions found;
  std::uint64_t gradients = 0;
  for (const auto& optimizer : examined.facts().optimizers) gradients += optimizer.tensors.value_or(0);
  const auto kernels = kernels_where(examined, found.test);
  if (kernels.count <= 0) return found;
  const double count = std::min(static_cast<double>(gradients), kernels.count);
  found.share = count / kernels.count;
  found.ms = found.share * kernels.ms;
  double launches = 0;
  for (const auto& use : examined.evidence.attribution.calls) {
    if (use.phase == HostPhase::backward && use.category == "launch") launches += use.count;
  }
  if (launches > 0) found.launches = std::min(1.0, count / launches);
  return found;
}

Matches zero_grad(const Case& examined) {
  const auto site = filling_call(examined.source);
  if (!site.known()) return {};
  const KernelTest fills = [](const KernelUse& kernel) {
    const auto name = base::lower(kernel.name);
    return base::contains(name, "fillfunctor") || base::contains(name, "zerofunctor");
  };
  const auto kernels = kernels_where(examined, fills);
  const auto adds = additions(examined);
  auto change = scaled_where(examined, fills, 0);
  change += scaled_where(examined, adds.test, 1 - adds.share);
  change += Change::without(cause::kLaunchBound, site);
  change.removals.push_back({std::string(cause::kLaunchBound), std::nullopt, HostPhase::backward, adds.launches});
  double launching = 0;
  for (const auto& charge : examined.evidence.attribution.charges) {
    if (charge.cause != cause::kLaunchBound) continue;
    if (charge.line.file == site.file && charge.line.line == site.line) launching += charge.ms;
    if (charge.phase == HostPhase::backward) launching += adds.launches * charge.ms;
  }
  Match match;
  match.at(site).costs(kernels.ms + adds.ms + launching, examined.gain(change), examined.step_ms());
  match.fact("count", number_text(kernels.count));
  return {
      match.saw("zero_grad(set_to_none=False)", number_text(kernels.count) + " fills a step", match.facts["place"])};
}

/// A forward function of the user's that writes attention out: products around a softmax.
bool writes_attention(const SourceFacts& source) {
  for (const auto& file : source.files) {
    for (const auto& call : file.calls) {
      const bool softmax = base::contains(call.name, "softmax") && !base::contains(call.name, "log_softmax");
      if (softmax && (call.function.ends_with("forward") || base::contains(base::lower(call.function), "attention")))
        return true;
    }
  }
  return false;
}

Matches attention(const Case& examined) {
  const auto math = examined.facts().attention.find("math");
  const double calls = math == examined.facts().attention.end() ? 0 : math->second;
  const KernelTest parts = [](const KernelUse& kernel) { return kernel.kind.kind == "softmax"; };
  const auto kernels = kernels_where(examined, parts);
  if (kernels.ms <= 0 || (calls <= 0 && !writes_attention(examined.source))) return {};
  Match match;
  match.near({main_line(examined, "gpu-softmax")});
  match.costs(kernels.ms, examined.gain(scaled_where(examined, parts, keeps("attention-slow"))), examined.step_ms());
  match.fact("count", number_text(calls));
  match.saw("softmax kernels", fmt::format("{} a step, {} ms", number_text(kernels.count), ms_text(kernels.ms)),
            "CUPTI");
  if (calls > 0)
    match.saw("scaled_dot_product_attention by its plain form", number_text(calls) + " a step", "counted step");
  return {match};
}

bool compiled(const Case& examined) {
  const auto& stats = examined.facts().compile_stats;
  const auto* model = examined.facts().largest_model();
  return (stats && stats->frames > 0) || (model != nullptr && model->compiled == true);
}

Matches elementwise(const Case& examined) {
  const KernelTest moves = of_kind("elementwise");
  const auto kernels = kernels_where(examined, moves);
  const double busy = examined.evidence.gpu_time.busy_ms;
  if (busy <= 0 || kernels.ms < 0.5 * busy || compiled(examined)) return {};
  Match match;
  match.near({main_line(examined, "gpu-elementwise")});
  match.costs(kernels.ms, examined.gain(scaled_where(examined, moves, keeps("elementwise-heavy"))), examined.step_ms());
  match.fact("kernels", number_text(kernels.count)).fact("share", percent(kernels.ms / busy));
  return {match.saw("element-wise kernels",
                    fmt::format("{} a step, {} ms", number_text(kernels.count), ms_text(kernels.ms)),
                    base::printable(kernels.longest, 80))};
}

constexpr std::array kRules{
    Rule{"zero-grad-fills", zero_grad},
    Rule{"attention-slow", attention},
    Rule{"elementwise-heavy", elementwise},
};

}  // namespace

std::span<const Rule> kernel_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
