#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fullwatt/explain/windows.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// The line samples of a window, by the phase they fell into: a gap in the forward pass is explained by a sample of the
/// forward pass, even when one of the backward pass is a little nearer.
class PhaseSamples {
 public:
  PhaseSamples(const model::TrainingProcess& process, const std::vector<PhasePiece>& phases, const Interval& range);

  /// The nearest one in the phase; null when the phase was never met.
  const model::LineSample* nearest(HostPhase phase, std::uint64_t time) const;
  /// The first at or after the time.
  const model::LineSample* next(HostPhase phase, std::uint64_t time) const;
  /// All of a phase, by time.
  const std::vector<model::LineSample>& in(HostPhase phase) const { return samples_[static_cast<std::size_t>(phase)]; }

 private:
  std::array<std::vector<model::LineSample>, kHostPhases> samples_;
};

}  // namespace fullwatt::explain
