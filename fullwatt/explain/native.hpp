#pragma once

#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// A program without Python has windows by the clock and no steps that we know of. What can be told of it is the GPU's
/// work in a second: busy time and kernels. Does nothing when nothing of the kind was recorded.
void describe_native(const model::Run& run, model::Explanation& explanation);

}  // namespace fullwatt::explain
