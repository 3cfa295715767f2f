#pragma once

#include <optional>
#include <vector>

#include "fullwatt/model/proof.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::tune {

/// A stretch of time, in the recorder's nanoseconds.
struct Stretch {
  double from_ns = 0;
  double to_ns = 0;
};

/// What a GPU draws, by its counter of energy. Where the counter tells too little there is no answer.
std::optional<double> counted_watts_over(const std::vector<model::GpuSample>& samples, int gpu, const Stretch& stretch);

/// Without and with a fix that takes turns.
std::optional<model::TurnWatts> counted_turn_watts(const std::vector<model::GpuSample>& samples, int gpu,
                                                   const std::vector<Stretch>& without,
                                                   const std::vector<Stretch>& with);

}  // namespace fullwatt::tune
