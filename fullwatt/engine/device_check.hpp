#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace fullwatt::engine {

/// Where the tensors of a network lie, as they are found, not as they were asked for.
struct DeviceCheck {
  std::size_t parameters = 0;
  std::size_t buffers = 0;
  std::uint64_t bytes = 0;             ///< of both
  std::vector<std::string> elsewhere;  ///< those that are not on the device
};
DeviceCheck check_device(const torch::nn::Module& network, at::Device device);

}  // namespace fullwatt::engine
