#pragma once

#include <string>
#include <vector>

#include "fullwatt/model/selection.hpp"

namespace fullwatt::tune {

/// Settings of `fullwatt train` to begin with on this card (requirement O9), such as "train.batch_size=256".
std::vector<std::string> starting_settings(const model::GpuStatus& gpu, int cpus);

}  // namespace fullwatt::tune
