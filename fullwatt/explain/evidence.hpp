#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "catalog/gpus.hpp"

#include "fullwatt/explain/attribution.hpp"
#include "fullwatt/explain/causes.hpp"
#include "fullwatt/explain/facts.hpp"
#include "fullwatt/explain/gpu_time.hpp"
#include "fullwatt/explain/replay.hpp"
#include "fullwatt/explain/steps.hpp"
#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// All that a rule may look at.
struct Evidence {
  const model::Run& run;
  const model::TrainingProcess* trainer = nullptr;  ///< of rank 0; null when no process made a step
  const model::Explanation& explanation;            ///< everything but findings, settings and the verdict
  const ProcessFacts& facts;                        ///< of the trainer; empty without one
  const std::vector<ProcessFacts>& all_facts;       ///< beside run.processes
  const Steps& steps;
  const GpuTime& gpu_time;  ///< empty without kernel records
  const Attribution& attribution;
  const Replay& replay;
  std::optional<catalog::GpuPeaks> peaks;  ///< of the GPU that was trained on, where it is known
};

}  // namespace fullwatt::explain
