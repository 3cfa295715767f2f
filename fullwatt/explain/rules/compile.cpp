// What torch.compile did, and did again.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

/// Compiling at the start is what it costs once; later it is a recompilation.
constexpr std::uint64_t kFirstSteps = 5;

double compiled_later_ms(const Case& examined) {
  double ms = 0;
  for (const auto& step : examined.evidence.steps.all) {
    if (step.number > kFirstSteps) ms += step.phase_ms[static_cast<std::size_t>(HostPhase::compile)];
  }
  return ms;
}

Matches recompiles(const Case& examined) {
  const auto& stats = examined.facts().compile_stats;
  const auto steps = static_cast<double>(examined.evidence.steps.all.size());
  if (!stats || stats->recompiles < 2 || steps < 1) return {};
  const double cost = compiled_later_ms(examined) / steps;
  Match match;
  if (!examined.facts().compiles.empty()) match.at(examined.facts().compiles.front().site);
  match.costs(cost, cost, examined.step_ms()).fact("count", number_text(stats->recompiles));
  return {match.saw("recompilations", number_text(stats->recompiles), "torch._dynamo")
              .saw("compiling in all", seconds_text(stats->seconds) + " s", "torch._dynamo")};
}

Matches graph_breaks(const Case& examined) {
  const auto& stats = examined.facts().compile_stats;
  if (!stats || stats->graph_breaks.empty()) return {};
  const auto most = std::ranges::max_element(stats->graph_breaks, {}, [](const auto& item) { return item.second; });
  double count = 0;
  for (const auto& [reason, times] : stats->graph_breaks) count += times;
  const double charged = examined.charged(cause::kLaunchBound);
  auto change = Change::without(cause::kLaunchBound);
  change.removals.front().share = 1 - keeps("compile-graph-breaks");
  Match match;
  match.near({stats->break_at});
  match.costs(charged, examined.gain(change), examined.step_ms());
  match.fact("count", number_text(count)).fact("value", base::printable(most->first, 120));
  for (const auto& [reason, times] : stats->graph_breaks)
    match.saw("graph break", base::printable(reason, 160), fmt::format("{} times", number_text(times)));
  return {match};
}

Matches unused(const Case& examined) {
  const auto& facts = examined.facts();
  if (facts.compiles.empty() || !facts.compile_stats || facts.compile_stats->frames > 0) return {};
  Match match;
  match.at(facts.compiles.front().site);
  return {match.saw("torch.compile", facts.compiles.front().target, place_of(facts.compiles.front().site))
              .saw("compiled functions", "0", "torch._dynamo")};
}

constexpr std::array kRules{
    Rule{"compile-recompiles", recompiles},
    Rule{"compile-graph-breaks", graph_breaks},
    Rule{"compile-unused", unused},
};

}  // namespace

std::span<const Rule> compile_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
