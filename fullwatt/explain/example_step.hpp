#pragma once

#include <vector>

#include "fullwatt/explain/recorded_causes.hpp"
#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// One typical step of the windows of causes as bars, at most 400, neighbours of the same kind joined. Without a GPU to
/// look at, the host's bars are its phases.
struct ExampleStep {
  std::vector<model::TimelineBar> bars;
  double ms = 0;
};
ExampleStep example_step(const model::TrainingProcess& process, const RecordedCauses& causes, bool gpu_seen);

}  // namespace fullwatt::explain
