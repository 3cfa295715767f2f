#include "fullwatt/engine/device_check.hpp"

namespace fullwatt::engine {

DeviceCheck check_device(const torch::nn::Module& network, at::Device device) {
  DeviceCheck found;
  const auto look = [&](const auto& named, std::size_t& count) {
    for (const auto& item : named) {
      ++count;
      found.bytes += item.value().nbytes();
      if (item.value().device() != device)
        found.elsewhere.push_back(item.key() + " is on " + item.value().device().str());
    }
  };
  look(network.named_parameters(), found.parameters);
  look(network.named_buffers(), found.buffers);
  return found;
}

}  // namespace fullwatt::engine
