#pragma once

#include "fullwatt/engine/data/data_set.hpp"
#include "fullwatt/engine/task.hpp"

namespace fullwatt::engine {

/// What a configuration names under `data`, with the fields that the task needs and no others. Files of arrays are
/// found by their fields' names where it says nothing.
base::Result<std::unique_ptr<DataSet>> open_samples(const Config& config, const Task& task);

}  // namespace fullwatt::engine
