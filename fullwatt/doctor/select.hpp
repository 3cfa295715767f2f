#pragma once

#include <string>

#include "fullwatt/model/machine.hpp"
#include "fullwatt/model/selection.hpp"

namespace fullwatt::doctor {

/// Usable before unusable, discrete before integrated, free before busy, then the most capable; what the user hid with
/// CUDA_VISIBLE_DEVICES stays hidden. A pure function, the same for a live and a recorded machine.
model::Selection select_gpu(const model::Machine& machine);

/// Lines for a shell that make CUDA use the selected GPU, by UUID so that CUDA's order does not matter.
std::string export_lines(const model::Selection& selection);

}  // namespace fullwatt::doctor
