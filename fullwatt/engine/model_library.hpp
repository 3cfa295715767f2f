#pragma once

#include "fullwatt/engine/task.hpp"

namespace fullwatt::engine {

/// From the shared library that the configuration names; it stays loaded. What its constructor throws is the error.
base::Result<std::unique_ptr<Task>> make_own_task(const ModelConfig& config);

}  // namespace fullwatt::engine
