// What lies between the steps, and how they vary.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/explain/rules/rule.hpp"

namespace fullwatt::explain {
namespace {

const model::BetweenSteps* between(const Case& examined, std::string_view id) {
  const auto& parts = examined.evidence.explanation.between;
  const auto at = std::ranges::find(parts, id, &model::BetweenSteps::id);
  return at == parts.end() ? nullptr : &*at;
}

/// What lies between steps is no part of one: its price is told in seconds.
Match told(const Case& examined, const model::BetweenSteps& part) {
  Match match;
  match.fact("seconds", seconds_text(part.seconds)).fact("share", percent(part.share));
  match.fact("value", seconds_text(examined.evidence.run.info.seconds));
  return match.saw("time", seconds_text(part.seconds) + " s", "steps");
}

Matches evaluation(const Case& examined) {
  const auto* part = between(examined, "evaluation");
  if (part == nullptr || part->share < 0.25) return {};
  return {told(examined, *part)};
}

Matches checkpoints(const Case& examined) {
  const auto* part = between(examined, "checkpoint");
  if (part == nullptr || part->share < 0.05) return {};
  auto match = told(examined, *part);
  match.fact("count", std::to_string(std::max<std::size_t>(1, examined.facts().saves.size())));
  if (!examined.facts().saves.empty()) match.at(examined.facts().saves.front().site);
  return {match};
}

Matches first_steps(const Case& examined) {
  constexpr double kLongStart = 30;
  const auto* part = between(examined, "first-steps");
  if (part == nullptr || part->share < 0.3 || part->seconds < kLongStart) return {};
  auto match = told(examined, *part);
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

/// Long steps that no other rule explains: waiting for data, garbage and compiling have their own.
Matches outliers(const Case& examined) {
  constexpr std::size_t kLeastSteps = 40;
  constexpr double kLong = 3;
  const auto steps = plain_steps(examined);
  const double usual = examined.evidence.steps.step_ms.median;
  if (steps.size() < kLeastSteps || usual <= 0) return {};
  double more = 0;
  double explained = 0;
  double count = 0;
  for (const auto* step : steps) {
    if (step->ms() < kLong * usual) continue;
    more += step->ms() - usual;
    for (const auto phase : {HostPhase::data, HostPhase::garbage, HostPhase::compile, HostPhase::save}) {
      explained +=
          std::max(0.0, step->phase_ms[static_cast<std::size_t>(phase)] - examined.evidence.steps.phase(phase));
    }
    ++count;
  }
  const double each = more / static_cast<double>(steps.size());
  if (count < 5 || explained > 0.5 * more || examined.share(each) < 0.05) return {};
  Match match;
  match.costs(each, each, examined.step_ms());
  match.fact("value", ms_text(usual))
      .fact("limit", ms_text(kLong * usual))
      .fact("count", number_text(static_cast<double>(steps.size()) / count));
  return {match.saw("long steps", fmt::format("{:.0f} of {}", count, steps.size()), "steps")};
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
