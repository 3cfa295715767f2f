// Aids for debugging that were left on.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/causes.hpp"
#include "fullwatt/explain/rules/kernel_facts.hpp"
#include "fullwatt/explain/rules/lines.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

/// What the catalogue promises of the whole step, since it slows down whatever the host does.
double share_of_step_ms(const Case& examined, std::string_view id) {
  return examined.step_ms() * (1 - keeps(id));
}

/// Compares a gradient with itself, and asks whether any of its numbers differs.
bool looks_for_nan(const KernelUse& kernel) {
  return mentions(kernel.name, {"CompareEqFunctor", "or_kernel_cuda"});
}

/// A step whose backward pass looks for NaN nowhere: no kernels for that, nobody who launches them or waits for them.
Change without_looking_for_nan(const Case& examined) {
  auto change = scaled_where(examined, looks_for_nan, 0);
  double launches = 0;
  for (const auto& use : examined.evidence.attribution.calls) {
    if (use.category == "launch" && use.phase == HostPhase::backward) launches += use.count;
  }
  const double looking = kernels_where(examined, looks_for_nan).count;
  if (looking <= 0 || launches <= 0) return change;
  change.removals.push_back(
      {std::string(cause::kLaunchBound), std::nullopt, HostPhase::backward, std::min(1.0, looking / launches)});
  return change += Change::without(cause::kSyncDrain, HostPhase::backward);
}

Matches anomaly_detection(const Case& examined) {
  if (examined.facts().flag("anomaly_detection") != true) return {};
  const double least = share_of_step_ms(examined, "anomaly-detection-on");
  const auto gain = examined.gain(without_looking_for_nan(examined));
  Match match;
  match.costs(std::max(gain.alone, least), {std::max(gain.alone, least), std::max(gain.after, least)},
              examined.step_ms());
  match.near({set_at(examined.source, {"set_detect_anomaly", "detect_anomaly"})});
  return {match.saw("torch.is_anomaly_enabled()", "true", "settings in force")};
}

Matches sync_debug(const Case& examined) {
  const auto mode = examined.facts().setting("sync_debug");
  if (!mode || *mode == "0" || *mode == "none" || *mode == "default" || *mode == "false") return {};
  Match match;
  match.near({set_at(examined.source, {"set_sync_debug_mode"})});
  return {match.saw("torch.cuda.get_sync_debug_mode()", *mode, "settings in force")};
}

const ProfilerFact* last_of(const Case& examined, std::string_view state) {
  const auto& all = examined.facts().profilers;
  const auto at = std::find_if(all.rbegin(), all.rend(), [&](const ProfilerFact& fact) { return fact.state == state; });
  return at == all.rend() ? nullptr : &*at;
}

/// How much of the training a profiler watched, and what the steps in which it was started or stopped took longer: it
/// works its events up there.
struct Profiled {
  double share = 0;
  double switching_ms = 0;  ///< of a step
};

Profiled profiled(const Case& examined) {
  const auto& steps = examined.evidence.steps;
  const auto& events = examined.facts().profilers;
  if (steps.all.empty() || events.empty()) return {};
  std::uint64_t watched = 0;
  double switching = 0;
  for (const auto& step : steps.all) {
    const auto after = std::ranges::upper_bound(events, step.end_ns, {}, &ProfilerFact::at_ns);
    if (after == events.begin()) continue;
    const auto& last = *std::prev(after);
    if (last.state == "start") watched += step.end_ns - step.start_ns;
    if (last.at_ns > step.start_ns) switching += std::max(0.0, step.ms() - steps.step_ms.median);
  }
  const auto whole = static_cast<double>(steps.all.back().end_ns - steps.all.front().start_ns);
  return {static_cast<double>(watched) / whole, switching / static_cast<double>(steps.all.size())};
}

Matches profiler_left_on(const Case& examined) {
  constexpr double kMostOfIt = 0.5;
  const auto* started = last_of(examined, "start");
  const auto* stopped = last_of(examined, "stop");
  const bool running = started != nullptr && (stopped == nullptr || stopped->at_ns < started->at_ns);
  const auto seen = profiled(examined);
  if (!running && seen.share < kMostOfIt && examined.facts().flag("profiler") != true) return {};
  const auto& first = examined.facts().profilers;
  const auto site = first.empty() ? model::Site{} : first.front().site;
  const double cost = std::max(share_of_step_ms(examined, "profiler-left-on"), seen.switching_ms);
  Match match;
  match.costs(cost, cost, examined.step_ms()).near({site});
  match.fact("name", started != nullptr && !started->who.empty() ? started->who : "torch.profiler");
  return {match.saw("profiler", running ? "started, not stopped" : percent(seen.share) + " % of the run watched",
                    place_of(site))};
}

/// Plain steps before the first profiler and after the last one.
Matches profiler_residue(const Case& examined) {
  constexpr std::size_t kLeastSteps = 10;
  const auto& profilers = examined.facts().profilers;
  const auto* stopped = last_of(examined, "stop");
  if (stopped == nullptr || profilers.back().state != "stop" || examined.facts().variable("TEARDOWN_CUPTI") == "1")
    return {};
  std::vector<double> before;
  std::vector<double> after;
  for (const auto& step : examined.evidence.steps.all) {
    if (!step.plain()) continue;
    if (step.end_ns < profilers.front().at_ns) before.push_back(step.ms());
    if (step.start_ns > stopped->at_ns) after.push_back(step.ms());
  }
  if (before.size() < kLeastSteps || after.size() < kLeastSteps) return {};
  const double more = spread_of(after).median - spread_of(before).median;
  if (more < 0.03 * spread_of(before).median) return {};
  Match match;
  match.at(stopped->site).costs(more, more, examined.step_ms());
  return {match.saw(
      "median step",
      fmt::format("{} ms before, {} ms after", ms_text(spread_of(before).median), ms_text(spread_of(after).median)),
      "steps")};
}

Matches launch_blocking(const Case& examined) {
  if (examined.facts().variable("CUDA_LAUNCH_BLOCKING") != "1") return {};
  const double idle = examined.charged(cause::kLaunchBound) + examined.charged(cause::kSyncDrain);
  Match match;
  match.costs(idle, idle * (1 - keeps("launch-blocking-on")), examined.step_ms());
  return {match.saw("CUDA_LAUNCH_BLOCKING", "1", "environment")};
}

constexpr std::array kRules{
    Rule{"anomaly-detection-on", anomaly_detection}, Rule{"sync-debug-on", sync_debug},
    Rule{"profiler-left-on", profiler_left_on},      Rule{"profiler-residue", profiler_residue},
    Rule{"launch-blocking-on", launch_blocking},
};

}  // namespace

std::span<const Rule> debugging_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
