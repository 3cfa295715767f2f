#pragma once

#include <string>

#include <c10/core/Device.h>

namespace fullwatt::engine {

/// A GPU as torch counts them. Empty texts and 0 where it is not known.
struct GpuCard {
  std::string name;
  std::string pci_address;  ///< in the form of NVML: "0000:17:00.0"
  int generation = 0;       ///< its compute capability before the point
};
GpuCard gpu_card(c10::DeviceIndex index);

}  // namespace fullwatt::engine
