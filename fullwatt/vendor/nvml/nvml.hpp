#pragma once

#include <string>

#include "fullwatt/model/nvml.hpp"

namespace fullwatt::vendor::nvml {

/// Loads the driver's management library, asks it everything once and lets it go. May hang or crash with a broken
/// driver: whoever must survive that calls it in a child process.
model::Nvml read(const std::string& library_name = "libnvidia-ml.so.1");

}  // namespace fullwatt::vendor::nvml
