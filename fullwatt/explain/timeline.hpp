#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fullwatt/explain/host_calls.hpp"
#include "fullwatt/explain/sites.hpp"
#include "fullwatt/explain/windows.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// A stretch of the training's host thread.
struct HostSegment {
  Interval range;
  HostPhase phase = HostPhase::rest;
  Work work = Work::unexplained;
  std::uint32_t line = 0;  ///< of Sites; 0 not known
  std::int32_t call = -1;  ///< index in TrainingProcess::calls; -1 between calls
  bool blocks = false;     ///< the call returns when the GPU is done
};
inline const Interval& interval_of(const HostSegment& segment) {
  return segment.range;
}

/// The host's own time in it: a launch that takes long waits for room in the driver's queue, which the GPU has to make.
double own_ms(const HostSegment& segment);

/// The host in windows of causes, without gaps. The autograd threads' calls inside the backward pass belong to it: the
/// main thread waits for them there.
///
/// A call into CUDA says itself what it is. Between calls: while launches follow each other closely the framework is at
/// work (launch-bound), else the line samples tell whose code runs, each for the time around it. Where no sample fell,
/// the same place of the other steps tells the line.
std::vector<std::vector<HostSegment>> host_timelines(const model::TrainingProcess& process, const Sites& sites,
                                                     const std::vector<StepWindow>& windows);

}  // namespace fullwatt::explain
