// What the GPU spends its time on that could be done with less.

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

Matches zero_grad(const Case& examined) {
  const auto site = filling_call(examined.source);
  if (!site.known()) return {};
  const KernelTest fills = [](const KernelUse& kernel) {
    const auto name = base::lower(kernel.name);
    return base::contains(name, "fillfunctor") || base::contains(name, "zerofunctor");
  };
  const auto kernels = kernels_where(examined, fills);
  auto change = scaled_where(examined, fills, 0);
  change += Change::without(cause::kLaunchBound, site);
  double launching = 0;
  for (const auto& charge : examined.evidence.attribution.charges) {
    if (charge.cause == cause::kLaunchBound && charge.line.file == site.file && charge.line.line == site.line)
      launching += charge.ms;
  }
  Match match;
  match.at(site).costs(kernels.ms + launching, examined.gain(change), examined.step_ms());
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
