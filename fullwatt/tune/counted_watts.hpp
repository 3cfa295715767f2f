#pragma once

#include <optional>
#include <vector>

#include "fullwatt/model/proof.hpp"
#include "fullwatt/model/run.hpp"

/// What a GPU draws, by its counter of energy: the driver's own watts are a mean over a second, and show a fast start
/// of a trial or a turn in it only when it is over. Where the counter tells too little there is no answer.
namespace fullwatt::tune {

/// A stretch of time, in the recorder's nanoseconds.
struct Stretch {
  double from_ns = 0;
  double to_ns = 0;
};

std::optional<double> watts_over(const std::vector<model::GpuSample>& samples, int gpu, const Stretch& stretch);

/// Without and with a fix that takes turns.
std::optional<model::TurnWatts> turn_watts(const std::vector<model::GpuSample>& samples, int gpu,
                                           const std::vector<Stretch>& without, const std::vector<Stretch>& with);

}  // namespace fullwatt::tune
