#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>

#include "fullwatt/explain/gpu_time.hpp"
#include "fullwatt/explain/recorded_causes.hpp"
#include "fullwatt/explain/steps.hpp"

/// The GPU's idle time: how much in each phase, and what it goes to.
namespace fullwatt::explain {

using PhaseTimes = std::array<double, kHostPhases>;  ///< ms of a step, by HostPhase

/// Idle milliseconds of a plain step by phase. They sum to the mean step less the GPU's busy time.
PhaseTimes idle_by_phase(const Steps& steps, const GpuTime& time);

struct IdleKey {
  HostPhase phase = HostPhase::rest;
  Work work = Work::unexplained;
  std::uint32_t line = 0;

  auto operator<=>(const IdleKey&) const = default;
};
using IdleWeights = std::map<IdleKey, double>;

/// What the GPU's gaps in the windows of causes go to. Only proportions within a phase are meant.
///
/// After a call that waited for the GPU nothing is queued. When the host's own work is shorter than the GPU's, it would
/// have run ahead but for that call: the gaps until it is ahead again are the call's.
IdleWeights idle_weights(const RecordedCauses& causes, const Steps& steps, const GpuTime& time, bool loads_itself);

/// Whether the host would run ahead of the GPU if it never waited for it. `loads_itself`: the loader has no workers, so
/// that fetching is the host's own work.
bool host_runs_ahead(const RecordedCauses& causes, const GpuTime& time, bool loads_itself);

}  // namespace fullwatt::explain
