#include "fullwatt/tune/search.hpp"

#include <algorithm>
#include <numeric>

#include "catalog/fixes.hpp"

namespace fullwatt::tune {
namespace {

constexpr double kLeastSpeedup = 1.05;  ///< what a single start can tell from noise; the proof decides in the end

double mean_ms(const model::Trial& trial) {
  const auto sum = std::accumulate(trial.step_ms.begin(), trial.step_ms.end(), 0.0);
  return trial.step_ms.empty() ? 0 : sum / static_cast<double>(trial.step_ms.size());
}

/// The fix of a plan that another one cannot stand beside.
const model::PlannedFix* excluded_by(const model::Plan& plan, const std::string& fix) {
  const auto found =
      std::ranges::find_if(plan.fixes, [&](const auto& kept) { return catalog::exclude_each_other(kept.id, fix); });
  return found != plan.fixes.end() ? &*found : nullptr;
}

/// Why the trial says nothing for this fix; empty when it does.
std::string why_not(const model::Trial& trial, const std::string& fix) {
  if (!trial.failure.empty()) return trial.failure;
  const auto state = std::ranges::find(trial.fixes, fix, &model::FixState::id);
  if (state == trial.fixes.end()) return "it was not applied";
  return state->state == "in-force" ? std::string() : state->text;
}

}  // namespace

model::Tuning search(std::span<const Candidate> candidates, const TryPlan& try_plan, const SearchLimits& limits,
                     const std::function<void(const model::TriedFix&)>& told) {
  model::Tuning found;
  auto best = try_plan(found.plan);
  int starts = 1;
  if (!best.failure.empty()) {
    found.failure = best.failure;
    return found;
  }
  found.before_ms = found.after_ms = mean_ms(best);
  for (const auto& candidate : candidates) {
    model::TriedFix tried{candidate.fix, candidate.why, false, std::nullopt, {}};
    if (const auto* other = excluded_by(found.plan, candidate.fix.id)) {
      tried.reason = "not beside " + other->id;
    } else if (starts >= limits.starts || limits.is_over()) {
      tried.reason = "there was no time left";
    } else {
      auto plan = found.plan;
      plan.fixes.push_back(candidate.fix);
      const auto trial = try_plan(plan);
      ++starts;
      tried.reason = why_not(trial, candidate.fix.id);
      if (tried.reason.empty()) {
        tried.speedup = found.after_ms / mean_ms(trial);
        tried.kept = *tried.speedup >= kLeastSpeedup;
        if (!tried.kept) tried.reason = "no faster";
      }
      if (tried.kept) {
        plan.fixes.back().speedup = tried.speedup;
        found.plan = std::move(plan);
        found.after_ms = mean_ms(trial);
      }
    }
    told(tried);
    found.tried.push_back(std::move(tried));
  }
  return found;
}

}  // namespace fullwatt::tune
