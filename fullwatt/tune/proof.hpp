#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fullwatt/model/proof.hpp"

namespace fullwatt::tune {

/// A trial without the plan and one with it, run one after the other with the same seed.
using Pair = std::pair<model::Trial, model::Trial>;

/// Compares the mean steps pair by pair, so that what the machine does meanwhile falls out. Pairs with a failed trial
/// do not count.
model::SpeedProof prove_speed(std::span<const Pair> pairs);

/// A step without the plan and with it, in milliseconds: the means. Where the plan changes the batch, as many samples
/// as a step had before. Nothing where no pair was measured.
std::optional<std::pair<double, double>> step_ms(std::span<const Pair> pairs);

/// How hard the GPU worked in the trials without the plan and in those with it: the means.
std::pair<model::GpuWork, model::GpuWork> gpu_work(std::span<const Pair> pairs);

/// Compares the mean loss of the last half of the steps, pair by pair, after the same number of samples.
model::LossProof prove_losses(std::span<const Pair> pairs);

/// The pairs that were measured, as a report shows them.
std::vector<model::ProvedPair> told(std::span<const Pair> pairs);

}  // namespace fullwatt::tune
