// Many short kernels: the GPU is faster than the host can feed it.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/calls.hpp"
#include "fullwatt/explain/machine_facts.hpp"
#include "fullwatt/explain/rules/kernel_facts.hpp"
#include "fullwatt/explain/rules/lines.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

KernelSum all_kernels(const Case& examined) {
  return kernels_where(examined, [](const KernelUse&) { return true; });
}

double mean_us(const KernelSum& kernels) {
  return kernels.count > 0 ? kernels.ms / kernels.count * 1e3 : 0;
}

/// A debugging switch or a profiler explains slow launches better.
bool slowed_on_purpose(const Case& examined) {
  return examined.facts().variable("CUDA_LAUNCH_BLOCKING") == "1";
}

/// What faster launches still give when the causes that give more are gone: a host that never waits for the GPU may run
/// ahead of it as it is.
double left_after_others(const Case& examined) {
  const auto& causes = examined.evidence.explanation.causes;
  const auto at = std::ranges::find(causes, cause::kLaunchBound, &model::Cause::id);
  return at == causes.end() ? 0 : at->gain_after_ms.value_or(0);
}

Matches launch_bound(const Case& examined) {
  const double charged = examined.charged(cause::kLaunchBound);
  const auto kernels = all_kernels(examined);
  if (examined.share(charged) < 0.05 || kernels.count < 1 || slowed_on_purpose(examined)) return {};
  auto change = Change::without(cause::kLaunchBound);
  change.removals.front().share = 1 - keeps("launch-bound");
  Match match;
  match.near({main_line(examined, cause::kLaunchBound)});
  const auto gain = examined.gain(change);
  const double left = left_after_others(examined);
  match.costs(charged, {std::min(gain.alone, left), std::min(gain.after, left)}, examined.step_ms());
  match.fact("kernels", number_text(kernels.count)).fact("value", number_text(mean_us(kernels)));
  match.saw("kernels", fmt::format("{} a step, {} µs each", number_text(kernels.count), number_text(mean_us(kernels))),
            "CUPTI");
  return {match.saw("GPU idle between launches", ms_text(charged) + " ms of a step")};
}

/// A model so small that no card is filled by it: the launches are most of the step.
Matches small_work(const Case& examined) {
  const auto* model = examined.facts().largest_model();
  const double charged = examined.charged(cause::kLaunchBound);
  const auto kernels = all_kernels(examined);
  if (model == nullptr || model->parameters > 5'000'000 || examined.share(charged) < 0.5 || mean_us(kernels) > 10)
    return {};
  Match match;
  match.charged_ms = charged;
  match.saw("parameters", fmt::format("{:.1f} million", static_cast<double>(model->parameters) / 1e6),
            model->class_name);
  return {match.saw("mean kernel", number_text(mean_us(kernels)) + " µs", "CUPTI")};
}

/// Blocks of a launch, weighed by time.
double mean_blocks(const Case& examined) {
  double blocks = 0;
  double ms = 0;
  for (const auto& kernel : examined.evidence.gpu_time.kernels) {
    if (!multiplies(kernel)) continue;  // others are as large as the weights, whatever the batch
    blocks += kernel.blocks * kernel.ms;
    ms += kernel.ms;
  }
  return ms > 0 ? blocks / ms : 0;
}

/// Few samples in kernels so short that the GPU waits for the next one.
bool few_samples(const Case& examined) {
  return examined.evidence.steps.samples <= 32 && examined.share(examined.charged(cause::kLaunchBound)) >= 0.3 &&
         mean_us(all_kernels(examined)) < 10;
}

/// A larger batch gives more samples a second, not a shorter step: no milliseconds are promised.
Matches batch_small(const Case& examined) {
  const auto room = multiprocessors(examined.gpu);
  const auto total = memory_bytes(examined.gpu);
  const auto& memory = examined.facts().memory;
  const auto& time = examined.evidence.gpu_time;
  if (!room || !total || !memory || !time.known()) return {};
  const double used = static_cast<double>(memory->peak_allocated_bytes) / *total;
  const double blocks = mean_blocks(examined);
  if (used > 0.3 || examined.evidence.steps.samples <= 0) return {};
  if (blocks > 0.5 * *room && !few_samples(examined)) return {};
  const auto* loader = examined.facts().training_loader();
  Match match;
  match.near({loader == nullptr ? model::Site{} : loader->site});
  match.fact("samples", number_text(examined.evidence.steps.samples)).fact("gpu", name_of(examined.gpu));
  match.fact("value", percent(used)).fact("count", number_text(blocks)).fact("expected", number_text(*room));
  match.saw("blocks of a kernel", fmt::format("{} on {} multiprocessors", number_text(blocks), number_text(*room)),
            "CUPTI");
  return {match.saw("GPU memory used", percent(used) + " %", "allocator")};
}

double launches_from(const Case& examined, const LineGroup& group) {
  double count = 0;
  for (const auto& call : examined.evidence.attribution.calls) {
    const bool here = std::ranges::find(group.lines, call.line) != group.lines.end();
    if (here && call.category == to_string(CallCategory::launch)) count += call.count;
  }
  return count;
}

Matches per_parameter(const Case& examined) {
  constexpr double kMany = 16;
  constexpr double kLeast = 0.03;  // of the step
  Matches matches;
  for (const auto& group : parameter_loops(examined)) {
    const double launches = launches_from(examined, group);
    if (launches < kMany || examined.share(group.ms) < kLeast) continue;
    Match match;
    match.at(group.site).costs(group.ms, examined.gain(group.change), examined.step_ms());
    match.fact("count", number_text(launches));
    match.saw("launches", number_text(launches) + " a step", match.facts["place"]);
    matches.push_back(
        match.saw("line", base::printable(source_line(examined.evidence.run, group.site), 160), place_of(group.site)));
  }
  return matches;
}

constexpr std::array kRules{
    Rule{"launch-bound", launch_bound},
    Rule{"ops-per-parameter", per_parameter},
    Rule{"small-work-no-gain", small_work},
    Rule{"batch-small", batch_small},
};

}  // namespace

std::span<const Rule> launch_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
