#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fullwatt/explain/steps.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// From `start_ns` to `end_ns`, the end not included.
struct Interval {
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;

  std::uint64_t length_ns() const { return end_ns > start_ns ? end_ns - start_ns : 0; }
};

/// Whole steps inside a window. The recorder opens it right after a step, when the GPU has done all it was given, and
/// closes it when the GPU has done all again: what was recorded is the work of these steps, though a host that runs
/// ahead may have left its last step long before the GPU has.
struct StepWindow {
  Interval range;                         ///< of the host: from the first step boundary to the last
  std::vector<std::uint64_t> boundaries;  ///< at least two; the first and the last are the range's ends
  std::uint64_t records_end_ns = 0;       ///< what began before this was launched in the window
  std::uint64_t lost = 0;                 ///< records that found no room

  double steps() const { return static_cast<double>(boundaries.size() - 1); }
};

/// The windows of a mode that hold at least one whole step. Those that lost records are left out when others lost none;
/// steps with evaluation, saving or compiling in them are cut out where other steps remain.
std::vector<StepWindow> step_windows(const model::TrainingProcess& process, const std::vector<TrainingStep>& steps,
                                     model::RecordedWindow::Mode mode);

/// A stretch of the main thread in one phase.
struct PhasePiece {
  Interval range;
  HostPhase phase = HostPhase::rest;
  std::uint32_t site = 0;  ///< index in TrainingProcess::texts; 0 unknown
};

/// The range cut into phases without gaps; where phases lie in each other, the innermost counts.
std::vector<PhasePiece> phases_in(const model::TrainingProcess& process, const Interval& range);

/// The GPU's work of a window, by start; the last of it may lie behind the window's range.
std::vector<model::GpuActivity> activities_in(const model::TrainingProcess& process, const StepWindow& window,
                                              int device);

/// Intervals by start, joined where they touch.
std::vector<Interval> united(const std::vector<model::GpuActivity>& activities);
/// What of the range none of the joined intervals covers.
std::vector<Interval> gaps_between(const std::vector<Interval>& joined, const Interval& range);
double total_ms(std::span<const Interval> intervals);

/// Calls `visit(a, b, common)` for each pair of two sorted lists that overlap.
template <class A, class B, class Visit>
void for_each_overlap(const std::vector<A>& first, const std::vector<B>& second, Visit visit) {
  for (std::size_t i = 0, j = 0; i < first.size() && j < second.size();) {
    const Interval a = interval_of(first[i]);
    const Interval b = interval_of(second[j]);
    const Interval common{std::max(a.start_ns, b.start_ns), std::min(a.end_ns, b.end_ns)};
    if (common.length_ns() > 0) visit(first[i], second[j], common);
    a.end_ns <= b.end_ns ? ++i : ++j;
  }
}
inline Interval interval_of(const Interval& interval) {
  return interval;
}
inline Interval interval_of(const PhasePiece& piece) {
  return piece.range;
}

}  // namespace fullwatt::explain
