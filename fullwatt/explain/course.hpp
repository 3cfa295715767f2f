#pragma once

#include <optional>
#include <vector>

#include "fullwatt/explain/facts.hpp"
#include "fullwatt/explain/steps.hpp"
#include "fullwatt/explain/trained_gpu.hpp"
#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/run.hpp"

/// The run from its first step to its last.
namespace fullwatt::explain {

/// At most 400 points, joined with the samples of the GPU.
std::vector<model::TrendPoint> trend_of(const model::Run& run, const model::TrainingProcess& trainer,
                                        const Steps& steps, const TrainedGpu& gpu);

/// What is not part of any step: evaluation, checkpoints, the first steps, fullwatt itself.
std::vector<model::BetweenSteps> between_steps(const model::TrainingProcess& trainer, const Steps& steps);

/// fullwatt's cost as a share of the run: its hooks in every step, and what the recorded steps took longer than plain
/// ones.
double overhead_share(const model::TrainingProcess& trainer, const Steps& steps);

/// Seconds to the end of the epoch that was running; nothing when it is not known or is over.
std::optional<double> epoch_left_s(const model::TrainingProcess& trainer, const ProcessFacts& facts,
                                   const Steps& steps);

/// Of all GPUs that the training used, while it was watched. Inside a container the driver does not show who uses a
/// GPU: then the one that the training named counts.
std::optional<double> energy_kwh(const model::Run& run, const TrainedGpu& gpu);

/// A step with the cached batches of the ceiling test, once the loader's workers have filled their queues.
std::optional<double> ceiling_ms(const Steps& steps);

}  // namespace fullwatt::explain
