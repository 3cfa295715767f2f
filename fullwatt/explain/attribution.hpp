#pragma once

#include <string>
#include <vector>

#include "fullwatt/explain/gpu_time.hpp"
#include "fullwatt/explain/recorded_causes.hpp"
#include "fullwatt/explain/steps.hpp"
#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// A part of a step: one cause at one line in one phase.
struct Charge {
  std::string cause;
  bool gpu_busy = false;
  HostPhase phase = HostPhase::rest;
  model::Site line;  ///< of the user's code; not known() when it could not be told
  double ms = 0;     ///< of a step
};

/// Calls into CUDA of one name from one line, from the windows of causes.
struct CallUse {
  std::string name;      ///< such as cudaStreamSynchronize
  std::string category;  ///< sync, copy, allocator, launch, module-load, other
  HostPhase phase = HostPhase::rest;
  model::Site line;
  double count = 0;  ///< of a step
  double ms = 0;     ///< of a step, blocked or not; longer than without recording
  double bytes = 0;  ///< of a step, copies only
  bool pageable = false;
};

/// Where a step's time went. The charges sum to the mean plain step.
struct Attribution {
  std::vector<Charge> charges;
  std::vector<CallUse> calls;
  double idle_ms = 0;       ///< of a step; 0 without kernel records
  double causes_steps = 0;  ///< steps in the windows of causes

  double ms(std::string_view cause) const;
  double ms(std::string_view cause, HostPhase phase) const;
};

/// With kernel records: the GPU's busy time by kind of work, its idle time by what the host was at.
///
/// How long the GPU is idle in each phase comes from plain steps and the windows of kernel times; how that splits into
/// causes and lines from the windows of causes, whose own times are longer than life.
Attribution attribute_gpu(const model::TrainingProcess& process, const Steps& steps, const GpuTime& time,
                          const RecordedCauses& causes, bool loads_itself);

/// Without kernel records (training on the CPU, or CUPTI not to be had): the host's phases, split by line samples.
Attribution attribute_host(const Steps& steps, const RecordedCauses& causes);

/// What the host's time in a phase is called when there is no GPU to look at.
std::string_view host_cause(HostPhase phase, Work work);

/// The calls into CUDA of the windows of causes.
std::vector<CallUse> call_uses(const model::TrainingProcess& process, const RecordedCauses& causes);

/// The charges by cause, the largest first; their charged_ms sum to `step_ms` to the last bit that doubles have.
std::vector<model::Cause> causes_of(const Attribution& attribution, double step_ms);
/// Every line that costs, once for each of its causes: `what` is the cause's id, which has words in the catalogue.
std::vector<model::LineCost> lines_of(const Attribution& attribution);

}  // namespace fullwatt::explain
