#include "fullwatt/explain/attribution.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "fullwatt/explain/calls.hpp"
#include "fullwatt/explain/causes.hpp"
#include "fullwatt/explain/idle.hpp"

namespace fullwatt::explain {
namespace {

/// The lines of the phases as the windows of kernel times have them, for runs without a window of causes.
std::map<std::pair<HostPhase, std::uint32_t>, double> phase_lines(const model::TrainingProcess& process,
                                                                  const Sites& sites) {
  std::map<std::pair<HostPhase, std::uint32_t>, double> lines;
  for (const auto& span : process.phases) {
    const auto line = sites.line_of_text(span.site);
    if (line == 0) continue;
    lines[{static_cast<HostPhase>(span.phase), line}] += static_cast<double>(span.end_ns - span.start_ns);
  }
  return lines;
}

std::string_view cause_of_phase(HostPhase phase) {
  switch (phase) {
    case HostPhase::data:
      return cause::kDataWait;
    case HostPhase::save:
      return cause::kCheckpoint;
    case HostPhase::garbage:
      return cause::kGarbage;
    case HostPhase::evaluation:
      return cause::kEvaluation;
    case HostPhase::compile:
      return cause::kCompile;
    case HostPhase::backward:
    case HostPhase::optimizer:
    case HostPhase::agent:
    case HostPhase::rest:
      break;
  }
  return cause::kUnexplained;
}

/// A phase that no window of causes met: its own cause, at the lines where it was called.
void charge_phase(const model::TrainingProcess& process, const Sites& sites, HostPhase phase, double ms,
                  std::vector<Charge>& charges) {
  double total = 0;
  const auto lines = phase_lines(process, sites);
  for (const auto& [key, weight] : lines) total += key.first == phase ? weight : 0;
  const std::string cause(cause_of_phase(phase));
  if (total <= 0) return charges.push_back({cause, false, phase, {}, ms});
  for (const auto& [key, weight] : lines) {
    if (key.first == phase) charges.push_back({cause, false, phase, sites.site(key.second), ms * weight / total});
  }
}

void charge_idle(const model::TrainingProcess& process, const RecordedCauses& causes, const PhaseTimes& idle,
                 const IdleWeights& weights, std::vector<Charge>& charges) {
  PhaseTimes total{};
  for (const auto& [key, ms] : weights) total[static_cast<std::size_t>(key.phase)] += ms;
  for (const auto& [key, ms] : weights) {
    const auto phase = static_cast<std::size_t>(key.phase);
    if (idle[phase] <= 0 || ms <= 0) continue;
    charges.push_back({std::string(cause_of(key.work)), false, key.phase, causes.sites.site(key.line),
                       idle[phase] * ms / total[phase]});
  }
  for (std::size_t i = 0; i < kHostPhases; ++i) {
    if (idle[i] > 0 && total[i] <= 0) charge_phase(process, causes.sites, static_cast<HostPhase>(i), idle[i], charges);
  }
}

/// From which lines each kind of GPU work was launched.
using LaunchLines = std::unordered_map<std::string, std::map<std::pair<HostPhase, std::uint32_t>, double>>;

LaunchLines launch_lines(const model::TrainingProcess& process, const RecordedCauses& causes) {
  LaunchLines lines;
  GpuCauses gpu(process);
  for (const auto& window : causes.windows) {
    for (const auto& activity : window.activities) {
      const auto* from = window.launched_from(activity);
      const auto key = from == nullptr ? std::pair(HostPhase::rest, 0U) : std::pair(from->phase, from->line);
      lines[gpu.cause(activity)][key] += static_cast<double>(activity.end_ns - activity.start_ns);
    }
  }
  return lines;
}

void charge_busy(const model::TrainingProcess& process, const GpuTime& time, const RecordedCauses& causes,
                 std::vector<Charge>& charges) {
  const auto lines = launch_lines(process, causes);
  for (const auto& part : time.busy) {
    const auto from = lines.find(part.cause);
    double total = 0;
    if (from != lines.end()) {
      for (const auto& [key, weight] : from->second) total += weight;
    }
    if (total <= 0) {
      charges.push_back({part.cause, true, HostPhase::rest, {}, part.ms});
      continue;
    }
    for (const auto& [key, weight] : from->second) {
      charges.push_back({part.cause, true, key.first, causes.sites.site(key.second), part.ms * weight / total});
    }
  }
}

std::string category_of(const HostSegment& segment, std::string_view name) {
  if (segment.work == Work::copy_wait) return std::string(to_string(CallCategory::copy));
  if (segment.work == Work::sync) return std::string(to_string(CallCategory::sync));
  return std::string(to_string(classify_call(name)));
}

}  // namespace

double Attribution::ms(std::string_view cause) const {
  double sum = 0;
  for (const auto& charge : charges) sum += charge.cause == cause ? charge.ms : 0;
  return sum;
}

double Attribution::ms(std::string_view cause, HostPhase phase) const {
  double sum = 0;
  for (const auto& charge : charges) sum += charge.cause == cause && charge.phase == phase ? charge.ms : 0;
  return sum;
}

Attribution attribute_gpu(const model::TrainingProcess& process, const Steps& steps, const GpuTime& time,
                          const RecordedCauses& causes, bool loads_itself) {
  Attribution attribution;
  attribution.idle_ms = std::max(0.0, steps.mean_ms() - time.busy_ms);
  attribution.causes_steps = causes.steps();
  attribution.calls = call_uses(process, causes);
  const auto weights = idle_weights(causes, steps, time, loads_itself);
  charge_idle(process, causes, idle_by_phase(steps, time), weights, attribution.charges);
  charge_busy(process, time, causes, attribution.charges);
  return attribution;
}

std::vector<CallUse> call_uses(const model::TrainingProcess& process, const RecordedCauses& causes) {
  std::map<std::tuple<std::uint32_t, HostPhase, std::uint32_t>, CallUse> uses;
  for (const auto& window : causes.windows) {
    std::unordered_map<std::uint64_t, const model::GpuActivity*> copies;
    for (const auto& activity : window.activities) {
      if (activity.kind == model::GpuActivity::Kind::copy) copies[activity.correlation] = &activity;
    }
    for (const auto& segment : window.host) {
      if (segment.call < 0) continue;
      const auto& call = process.calls[static_cast<std::size_t>(segment.call)];
      const auto& name = process.text(call.name);
      auto& use = uses[{call.name, segment.phase, segment.line}];
      use.name = name;
      use.category = category_of(segment, name);
      use.phase = segment.phase;
      use.line = causes.sites.site(segment.line);
      use.count += 1 / causes.steps();
      use.ms += static_cast<double>(segment.range.length_ns()) / 1e6 / causes.steps();
      const auto copy = copies.find(call.correlation);
      if (copy == copies.end()) continue;
      use.bytes += static_cast<double>(copy->second->bytes) / causes.steps();
      use.pageable = use.pageable || copy->second->source_kind == 1 || copy->second->destination_kind == 1;
    }
  }
  std::vector<CallUse> sorted;
  for (auto& [key, use] : uses) sorted.push_back(std::move(use));
  std::ranges::stable_sort(sorted, std::greater{}, &CallUse::ms);
  return sorted;
}

}  // namespace fullwatt::explain
