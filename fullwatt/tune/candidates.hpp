#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullwatt/explain/facts.hpp"
#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/plan.hpp"
#include "fullwatt/model/proof.hpp"

namespace fullwatt::tune {

/// What is known of a training before anything is tried.
struct Situation {
  const model::Explanation& explanation;
  const explain::ProcessFacts& facts;
  int cpus = 1;                         ///< that the training may use
  std::uint64_t memory_free_bytes = 0;  ///< of the host
  std::string gpu_cpus = {};            ///< those of the CPUs that stand beside the GPU, where not all do
  bool cpu_knows_bfloat16 = false;
};

/// A fix worth a trial.
struct Candidate {
  model::PlannedFix fix;
  std::string why;
  model::Prediction predicted;
};

/// Every fix that makes sense here, in the order in which fixes are tried.
std::vector<Candidate> candidates(const Situation& situation);

}  // namespace fullwatt::tune
