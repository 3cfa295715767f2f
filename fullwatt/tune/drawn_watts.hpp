#pragma once

#include <optional>
#include <vector>

#include "fullwatt/model/proof.hpp"
#include "fullwatt/model/run.hpp"
#include "fullwatt/tune/counted_watts.hpp"

/// What a GPU draws while fixes take turns, and in a start of a trial: by the samples of power that its driver keeps,
/// else by its counter of energy. The driver's own watts are a mean over a second, and show a turn when it is over.
namespace fullwatt::tune {

std::optional<double> watts_over(const model::Run& run, int gpu, const Stretch& stretch);

/// Without and with a fix that takes turns: the n-th of both are neighbours. Nothing where they cannot be told well.
std::optional<model::TurnWatts> turn_watts(const model::Run& run, int gpu, const std::vector<Stretch>& without,
                                           const std::vector<Stretch>& with);

}  // namespace fullwatt::tune
