#pragma once

#include "fullwatt/engine/data/data_set.hpp"
#include "fullwatt/engine/task.hpp"

namespace fullwatt::engine {

/// Refuses settings for pictures (`augment:`, data.mean and data.std) that do not fit the model or its data.
base::Result<void> check_pictures(const Config& config, const Task& task, const DataSet& data);

}  // namespace fullwatt::engine
