#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "fullwatt/explain/calls.hpp"
#include "fullwatt/explain/sites.hpp"
#include "fullwatt/explain/windows.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// What the host is at. The ids of causes.hpp belong to it, but `agent`, which is fullwatt itself.
enum class Work {
  data_wait,
  sync,
  copy_wait,
  allocator,
  launch,
  module_load,
  python,
  garbage,
  compile,
  checkpoint,
  evaluation,
  agent,
  unexplained
};
std::string_view cause_of(Work work);

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

/// The host in a window of causes, without gaps. The autograd threads' calls inside the backward pass belong to it: the
/// main thread waits for them there.
///
/// A call into CUDA says itself what it is. Between calls: while launches follow each other closely the framework is at
/// work (launch-bound), else the line samples tell whose code runs, each for the time around it.
std::vector<HostSegment> host_timeline(const model::TrainingProcess& process, const Sites& sites,
                                       const StepWindow& window);

/// The operating system's id of the thread that trains.
std::uint64_t training_thread(const model::TrainingProcess& process, const std::vector<PhasePiece>& phases,
                              const Interval& range);

}  // namespace fullwatt::explain
