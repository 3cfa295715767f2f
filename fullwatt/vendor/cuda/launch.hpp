#pragma once

#include "fullwatt/base/reading.hpp"
#include "fullwatt/vendor/cuda/calls.hpp"

namespace fullwatt::vendor::cuda {

struct Launch {
  base::Reading<int> context;  ///< code of creating the context
  base::Reading<int> kernel;   ///< 0 when the kernel's result was right, else the code of the call that failed
};

/// Runs the check kernel once on a device, in the device's primary context, and leaves nothing behind.
Launch launch(const Calls& calls, abi::Device device);

}  // namespace fullwatt::vendor::cuda
