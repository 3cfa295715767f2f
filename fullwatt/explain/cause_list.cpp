#include <algorithm>
#include <map>

#include "fullwatt/explain/attribution.hpp"
#include "fullwatt/explain/causes.hpp"

namespace fullwatt::explain {
namespace {

using LineKey = std::pair<model::Site, std::string>;  // place and cause

std::map<LineKey, double> costs_by_line(const Attribution& attribution) {
  std::map<LineKey, double> costs;
  for (const auto& charge : attribution.charges) {
    if (charge.line.known() && charge.ms > 0) costs[{charge.line, charge.cause}] += charge.ms;
  }
  return costs;
}

void sort(std::vector<model::LineCost>& lines) {
  std::ranges::stable_sort(lines, std::greater{}, &model::LineCost::ms);
}

/// Sums of doubles are off by a little: the largest part takes it.
void meet(std::vector<model::Cause>& causes, double step_ms) {
  for (int i = 0; i < 4 && !causes.empty(); ++i) {
    double sum = 0;
    for (const auto& cause : causes) sum += cause.charged_ms;
    if (sum == step_ms) return;
    causes.front().charged_ms = std::max(0.0, causes.front().charged_ms + (step_ms - sum));
  }
}

}  // namespace

std::vector<model::Cause> causes_of(const Attribution& attribution, double step_ms) {
  std::map<std::string, model::Cause> found;
  for (const auto& charge : attribution.charges) {
    if (charge.ms <= 0) continue;
    auto& cause = found[charge.cause];
    cause.id = charge.cause;
    cause.gpu_busy = charge.gpu_busy;
    cause.explained = charge.cause != cause::kUnexplained;
    cause.charged_ms += charge.ms;
  }
  for (const auto& [key, ms] : costs_by_line(attribution)) {
    found[key.second].lines.push_back({key.first, ms, key.second});
  }
  std::vector<model::Cause> causes;
  for (auto& [id, cause] : found) {
    sort(cause.lines);
    causes.push_back(std::move(cause));
  }
  std::ranges::stable_sort(causes, std::greater{}, &model::Cause::charged_ms);
  meet(causes, step_ms);
  return causes;
}

std::vector<model::LineCost> lines_of(const Attribution& attribution) {
  std::vector<model::LineCost> lines;
  for (const auto& [key, ms] : costs_by_line(attribution)) lines.push_back({key.first, ms, key.second});
  sort(lines);
  return lines;
}

}  // namespace fullwatt::explain
