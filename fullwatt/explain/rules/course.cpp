// What lies between the steps, and how they vary.

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "fullwatt/explain/machine_facts.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/sites.hpp"

namespace fullwatt::explain {
namespace {

const model::BetweenSteps* between(const Case& examined, std::string_view id) {
  const auto& parts = examined.evidence.explanation.between;
  const auto at = std::ranges::find(parts, id, &model::BetweenSteps::id);
  return at == parts.end() ? nullptr : &*at;
}

/// What lies between steps is told in seconds; spread over the steps it stands in one ranking with all else.
Match told(const Case& examined, const model::BetweenSteps& part, std::string_view id) {
  Match match;
  const auto steps = static_cast<double>(std::max<std::uint64_t>(1, examined.evidence.explanation.steps));
  match.charged_ms = part.seconds * 1e3 / steps;
  match.gain_ms = *match.charged_ms * (1 - keeps(id));
  match.between_steps = true;
  match.fact("seconds", seconds_text(part.seconds)).fact("share", percent(part.share));
  match.fact("value", seconds_text(examined.evidence.run.info.seconds));
  return match.saw("time", seconds_text(part.seconds) + " s", "steps");
}

Matches evaluation(const Case& examined) {
  const auto* part = between(examined, "evaluation");
  if (part == nullptr || part->share < 0.25) return {};
  const auto& sites = examined.facts().evaluations;
  return {told(examined, *part, "evaluation-dominates").near({sites.empty() ? model::Site{} : sites.front()})};
}

Matches checkpoints(const Case& examined) {
  const auto* part = between(examined, "checkpoint");
  if (part == nullptr || part->share < 0.05) return {};
  auto match = told(examined, *part, "checkpoints-dominate");
  match.fact("count", std::to_string(std::max<std::size_t>(1, examined.facts().saves.size())));
  if (!examined.facts().saves.empty()) match.at(examined.facts().saves.front().site);
  return {match};
}

Matches first_steps(const Case& examined) {
  constexpr double kLongStart = 30;
  const auto* part = between(examined, "first-steps");
  if (part == nullptr || part->share < 0.3 || part->seconds < kLongStart) return {};
  auto match = told(examined, *part, "first-steps-dominate");
  const auto& stats = examined.facts().compile_stats;
  return {match.fact("value", seconds_text(stats ? stats->seconds : 0))};
}

/// Plain steps, those that the mean leaves out too.
std::vector<const TrainingStep*> plain_steps(const Case& examined) {
  std::vector<const TrainingStep*> steps;
  for (const auto& step : examined.evidence.steps.all) {
    if (step.plain()) steps.push_back(&step);
  }
  return steps;
}

/// What long steps take more than usual. Steps before them that were shorter only left them work: a host that hurries
/// ahead of the GPU and then waits for it has lost nothing.
struct LongSteps {
  double more_ms = 0;
  double explained_ms = 0;  ///< by waiting for data, garbage, compiling and saving, which have their own rules
  double count = 0;
  std::array<double, kHostPhases> more_by_phase{};
  std::vector<std::uint64_t> numbers;
};

bool profiler_switches(const Case& examined, const TrainingStep& step) {
  return std::ranges::any_of(examined.facts().profilers, [&](const ProfilerFact& fact) {
    return fact.at_ns > step.start_ns && fact.at_ns <= step.end_ns;
  });
}

LongSteps long_steps(const Case& examined, double usual_ms, double limit_ms) {
  constexpr double kMostStepsAhead = 32;  // the driver queues some 1024 launches, and a step has thirty at least
  LongSteps found;
  double owed = 0;
  for (const auto* step : plain_steps(examined)) {
    const double more = step->ms() - usual_ms - owed;
    owed = std::clamp(-more, 0.0, kMostStepsAhead * usual_ms);
    if (usual_ms + more < limit_ms) continue;
    if (profiler_switches(examined, *step)) continue;
    found.more_ms += more;
    for (const auto phase : {HostPhase::data, HostPhase::garbage, HostPhase::compile, HostPhase::save}) {
      found.explained_ms +=
          std::max(0.0, step->phase_ms[static_cast<std::size_t>(phase)] - examined.evidence.steps.phase(phase));
    }
    ++found.count;
    found.numbers.push_back(step->number);
    for (std::size_t i = 0; i < kHostPhases; ++i) {
      found.more_by_phase[i] += std::max(0.0, step->phase_ms[i] - examined.evidence.steps.phase_ms[i]);
    }
  }
  return found;
}

/// Whether every part of a step is longer in them alike: as when the machine is slower for a while, not as when the
/// program does something more.
bool longer_alike(const Case& examined, const LongSteps& found) {
  constexpr double kElsewhere = 0.25;  // of their excess; five of them are hit by chance as unevenly
  const auto& usual = examined.evidence.steps.phase_ms;
  const double all = std::accumulate(found.more_by_phase.begin(), found.more_by_phase.end(), 0.0);
  const double usual_all = std::accumulate(usual.begin(), usual.end(), 0.0);
  if (all <= 0 || usual_all <= 0) return false;
  double elsewhere = 0;
  for (std::size_t i = 0; i < kHostPhases; ++i) {
    elsewhere += std::max(0.0, found.more_by_phase[i] / all - usual[i] / usual_all);
  }
  return elsewhere < kElsewhere;
}

/// Whether most of them come after the same number of steps; several in a row are one.
bool in_a_rhythm(const LongSteps& found) {
  std::map<std::uint64_t, std::size_t> distances;
  std::size_t all = 0;
  for (std::size_t i = 1; i < found.numbers.size(); ++i) {
    const auto distance = found.numbers[i] - found.numbers[i - 1];
    if (distance < 2) continue;
    ++distances[distance];
    ++all;
  }
  const auto most = std::ranges::max_element(distances, {}, [](const auto& entry) { return entry.second; });
  return most != distances.end() && most->second * 2 > all;
}

/// Share of the time in which the training may have waited for a CPU that others had: one that is taken stops all
/// threads that compute together.
double taken_by_others(const Case& examined) {
  const auto load = host_load(examined.evidence);
  return std::min(1.0, load.pressure + load.stolen);
}

/// The line of the user's at which long steps were seen most often, where windows of causes hold some of them.
model::Site line_of_long_steps(const Case& examined, double limit_ms) {
  const auto* trainer = examined.evidence.trainer;
  if (trainer == nullptr) return {};
  const Sites sites(*trainer, examined.facts());
  std::map<std::uint32_t, int> seen;
  int all = 0;
  for (const auto& step : examined.evidence.steps.all) {
    if (!step.has(step_flag::kInCauses) || step.has(step_flag::kSwitching) || step.ms() < limit_ms) continue;
    auto sample = std::ranges::lower_bound(trainer->samples, step.start_ns, {}, &model::LineSample::at_ns);
    for (; sample != trainer->samples.end() && sample->at_ns < step.end_ns; ++sample, ++all)
      ++seen[sites.moment(sample->stack).line];
  }
  seen.erase(0);
  const auto most = std::ranges::max_element(seen, {}, [](const auto& entry) { return entry.second; });
  constexpr int kLeastPart = 4;  // less than a quarter is no cause
  if (most == seen.end() || most->second * kLeastPart < all) return {};
  return sites.site(most->first);
}

/// Where the machine's other users took as much time as the long steps, or all of a step is longer now and then, the
/// training is not to blame.
Matches outliers(const Case& examined) {
  constexpr double kLeastSteps = 40;
  constexpr double kLong = 3;
  const auto steps = static_cast<double>(plain_steps(examined).size());
  const double usual = examined.evidence.steps.step_ms.median;
  if (steps < kLeastSteps || usual <= 0) return {};
  const auto seen = long_steps(examined, usual, kLong * usual);
  // A run that became faster has long steps that its mean does not know.
  const double each = std::min(seen.more_ms / steps, examined.step_ms() - usual);
  if (seen.count < 5 || seen.explained_ms > 0.5 * seen.more_ms || examined.share(each) < 0.1) return {};
  Match match;
  match.costs(each, each, examined.step_ms());
  match.fact("value", ms_text(usual))
      .fact("limit", ms_text(kLong * usual))
      .fact("count", number_text(steps / seen.count));
  match.near({line_of_long_steps(examined, kLong * usual)});
  const double taken = taken_by_others(examined);
  const bool others = taken >= examined.share(each);
  const bool machine = longer_alike(examined, seen) && !in_a_rhythm(seen);
  if (others) match.saw("CPUs taken by others", percent(taken) + " % of the time", "/proc");
  if (machine) match.saw("what is longer in them", "every part alike, in no rhythm", "steps");
  if (others || machine) {
    match.severity = model::Severity::info;
    match.gain_ms.reset();
  }
  return {match.saw("long steps", fmt::format("{:.0f} of {:.0f}", seen.count, steps), "steps")};
}

constexpr std::array kRules{
    Rule{"evaluation-dominates", evaluation},
    Rule{"checkpoints-dominate", checkpoints},
    Rule{"first-steps-dominate", first_steps},
    Rule{"step-outliers", outliers},
};

}  // namespace

std::span<const Rule> course_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
