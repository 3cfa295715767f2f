#pragma once

#include <vector>

#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/proof.hpp"

namespace fullwatt::tune {

/// What else could use the card that a training leaves idle, with figures: several trainings at once, a larger model or
/// batch, larger inputs. Nothing for a card that is at work, or of which too little is known.
std::vector<model::Advice> advice(const model::Explanation& explanation);

}  // namespace fullwatt::tune
