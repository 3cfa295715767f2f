#include <array>
#include <cstdio>

#include <ATen/cuda/CUDAContextLight.h>

#include "fullwatt/engine/gpu_card.hpp"

namespace fullwatt::engine {

GpuCard gpu_card(c10::DeviceIndex index) {
  const auto* const gpu = at::cuda::getDeviceProperties(index);
  std::array<char, 32> address{};
  std::snprintf(address.data(), address.size(), "%04x:%02x:%02x.0", static_cast<unsigned>(gpu->pciDomainID),
                static_cast<unsigned>(gpu->pciBusID), static_cast<unsigned>(gpu->pciDeviceID));
  return {gpu->name, address.data(), gpu->major};
}

}  // namespace fullwatt::engine
