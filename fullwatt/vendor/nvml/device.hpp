#pragma once

#include "fullwatt/model/nvml.hpp"
#include "fullwatt/vendor/nvml/functions.hpp"

namespace fullwatt::vendor::nvml {

/// Everything NVML tells about the GPU at `index`. One that cannot be had at all is only its index and the code.
model::NvmlDevice read_device(const Functions& nvml, unsigned index);

}  // namespace fullwatt::vendor::nvml
