#pragma once

#include <string>
#include <vector>

#include "fullwatt/explain/facts.hpp"
#include "fullwatt/explain/gpu_time.hpp"
#include "fullwatt/explain/steps.hpp"
#include "fullwatt/explain/trained_gpu.hpp"
#include "fullwatt/explain/windows.hpp"
#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// What the run used of what the card and the host can do (D6). A value that is not known has its reason.
std::vector<model::ResourceUse> resources_of(const model::Run& run, const model::TrainingProcess& trainer,
                                             const ProcessFacts& facts, const Steps& steps, const GpuTime& time,
                                             const TrainedGpu& gpu);

/// The precision in which most of the matrix work is done: of the kernels where they are known, else of the operations
/// that were counted. Empty when neither tells.
std::string dominant_precision(const ProcessFacts& facts, const GpuTime& time);

/// From the first step to the last that was recorded.
Interval stepping(const model::TrainingProcess& trainer, const Steps& steps);

}  // namespace fullwatt::explain
