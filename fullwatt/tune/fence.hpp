#pragma once

#include <string>
#include <vector>

#include "fullwatt/base/error.hpp"

namespace fullwatt::tune {

/// Forbids this process, and all that it starts, to write outside these folders and the devices, for good: by Landlock,
/// which needs no rights and works inside containers (Linux 5.13). What is already open stays open.
base::Result<void> raise_fence(const std::vector<std::string>& writable);

}  // namespace fullwatt::tune
