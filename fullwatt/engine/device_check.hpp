#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "fullwatt/base/error.hpp"

namespace fullwatt::engine {

/// Where the tensors of a network lie, as they are found, not as they were asked for.
struct DeviceCheck {
  std::size_t parameters = 0;
  std::size_t buffers = 0;
  std::uint64_t bytes = 0;             ///< of both
  std::vector<std::string> elsewhere;  ///< those that are not on the device
};
DeviceCheck check_device(const torch::nn::Module& network, at::Device device);

std::unexpected<base::Error> misplaced(const std::string& name, const at::Tensor& tensor, at::Device device,
                                       const char* remedy);

/// Refuses the first of these tensors, pairs with their names, that is not on the device. Looked at in every step: it
/// copies nothing.
template <class NamedTensors>
base::Result<void> must_be_on(at::Device device, const NamedTensors& tensors, const char* remedy) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.device() != device) return misplaced(name, tensor, device, remedy);
  }
  return {};
}

}  // namespace fullwatt::engine
