#pragma once

#include <memory>

#include "fullwatt/doctor/probe/world.hpp"
#include "fullwatt/model/machine.hpp"

namespace fullwatt::doctor {

/// Asks every layer, the slow ones side by side, and joins the answers into one Machine. A probe that hangs or fails
/// is reported in `problems` and stops nothing.
model::Machine examine(std::shared_ptr<World> world, const Target& target);

}  // namespace fullwatt::doctor
