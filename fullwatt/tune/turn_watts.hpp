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

/// What a GPU draws without and with a fix that takes turns, from its counter of energy. The driver's own watts are a
/// mean over a second, longer than a turn. Nothing where the counter tells too little.
std::optional<model::TurnWatts> turn_watts(const std::vector<model::GpuSample>& samples, int gpu,
                                           const std::vector<Stretch>& without, const std::vector<Stretch>& with);

}  // namespace fullwatt::tune
