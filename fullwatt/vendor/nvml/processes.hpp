#pragma once

#include <vector>

#include "fullwatt/model/nvml.hpp"
#include "fullwatt/vendor/nvml/functions.hpp"

namespace fullwatt::vendor::nvml {

/// Who uses the GPU: first those that compute, then those that draw; one that does both is listed twice, as NVML does.
/// Names are left empty.
Reading<std::vector<model::GpuProcess>> read_processes(const Functions& nvml, abi::Device handle);

}  // namespace fullwatt::vendor::nvml
