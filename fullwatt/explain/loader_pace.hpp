#pragma once

#include <vector>

#include "fullwatt/explain/facts.hpp"
#include "fullwatt/explain/steps.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// How the loader works beside the training.
struct LoaderPace {
  bool loads_itself = false;  ///< it has no workers: fetching is the host's own work
  double floor_ms = 0;        ///< its workers need this long for a step's batches; 0 not known
};
LoaderPace loader_pace(const model::Run& run, const std::vector<ProcessFacts>& facts,
                       const model::TrainingProcess& trainer, const ProcessFacts& own, const Steps& steps);

/// Batches that a step takes from the loader, more than one with accumulation.
double batches_per_step(const model::TrainingProcess& process, const Steps& steps);

}  // namespace fullwatt::explain
