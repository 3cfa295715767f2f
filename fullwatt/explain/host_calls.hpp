#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

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

/// A call into CUDA of the thread that trains, or of autograd's threads inside the backward pass. Calls inside calls
/// are not listed.
struct HostCall {
  Interval range;
  std::int32_t index = -1;
  Work work = Work::launch;
  bool blocks = false;
};

/// By start, none overlapping another.
std::vector<HostCall> host_calls(const model::TrainingProcess& process, const std::vector<PhasePiece>& phases,
                                 const Interval& range);

/// The operating system's id of the thread that trains.
std::uint64_t training_thread(const model::TrainingProcess& process, const std::vector<PhasePiece>& phases,
                              const Interval& range);

}  // namespace fullwatt::explain
