#pragma once

#include <map>
#include <string>
#include <vector>

#include "fullwatt/explain/facts.hpp"
#include "fullwatt/explain/gpu_time.hpp"
#include "fullwatt/explain/steps.hpp"
#include "fullwatt/explain/trained_gpu.hpp"
#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// The table of what was trained on what: model, parameters, dtype, device, gpu, torch, python, optimizer, batch,
/// loader.
std::map<std::string, std::string> facts_table(const ProcessFacts& facts, const Steps& steps, const TrainedGpu& gpu);

/// What became of the plan's fixes.
std::vector<model::FixState> fixes_of(const ProcessFacts& facts);

/// Every process that trained, when there are several.
std::vector<model::RankSummary> ranks_of(const model::Run& run);

/// What could not be done, and why: troubles of agent and recorder, lost records, steps that were never undisturbed.
std::vector<std::string> remarks_of(const model::TrainingProcess& trainer, const ProcessFacts& facts,
                                    const Steps& steps, const GpuTime& time);

/// Why there are no kernel times; empty when there are.
std::string no_records_reason(const model::TrainingProcess& trainer, const ProcessFacts& facts, const GpuTime& time);

}  // namespace fullwatt::explain
