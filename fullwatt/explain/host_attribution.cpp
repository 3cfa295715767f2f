#include <algorithm>
#include <map>

#include "fullwatt/explain/attribution.hpp"
#include "fullwatt/explain/causes.hpp"

namespace fullwatt::explain {
namespace {

using Key = std::pair<std::string_view, std::uint32_t>;  // cause and line
using Weights = std::map<HostPhase, std::map<Key, double>>;

Weights weigh(const RecordedCauses& causes) {
  Weights weights;
  for (const auto& window : causes.windows) {
    for (const auto& segment : window.host) {
      if (segment.work == Work::agent) continue;
      weights[segment.phase][{host_cause(segment.phase, segment.work), segment.line}] +=
          static_cast<double>(segment.range.length_ns());
    }
  }
  return weights;
}

}  // namespace

std::string_view host_cause(HostPhase phase, Work work) {
  switch (phase) {
    case HostPhase::data:
      return cause::kDataWait;
    case HostPhase::backward:
      return cause::kBackward;
    case HostPhase::optimizer:
      return cause::kOptimizer;
    case HostPhase::save:
      return cause::kCheckpoint;
    case HostPhase::garbage:
      return cause::kGarbage;
    case HostPhase::evaluation:
      return cause::kEvaluation;
    case HostPhase::compile:
      return cause::kCompile;
    case HostPhase::agent:
      return cause::kUnexplained;
    case HostPhase::rest:
      break;
  }
  return work == Work::python ? cause::kPython : cause::kForward;
}

Attribution attribute_host(const Steps& steps, const RecordedCauses& causes) {
  Attribution attribution;
  attribution.causes_steps = causes.steps();
  auto weights = weigh(causes);
  for (std::size_t i = 0; i < kHostPhases; ++i) {
    const auto phase = static_cast<HostPhase>(i);
    const double ms = steps.phase_ms[i];
    if (ms <= 0) continue;
    double total = 0;
    for (const auto& [key, weight] : weights[phase]) total += weight;
    if (total <= 0) {
      attribution.charges.push_back({std::string(host_cause(phase, Work::unexplained)), false, phase, {}, ms});
      continue;
    }
    for (const auto& [key, weight] : weights[phase]) {
      attribution.charges.push_back(
          {std::string(key.first), false, phase, causes.sites.site(key.second), ms * weight / total});
    }
  }
  return attribution;
}

}  // namespace fullwatt::explain
