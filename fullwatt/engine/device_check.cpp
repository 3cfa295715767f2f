#include "fullwatt/engine/device_check.hpp"

#include "fullwatt/base/text.hpp"

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

std::unexpected<base::Error> misplaced(const std::string& name, const at::Tensor& tensor, at::Device device,
                                       const char* remedy) {
  return base::fail(
      base::Error::Kind::bad_input,
      base::printable(name, 100) + " is on " + tensor.device().str() + ", the training on " + device.str(), remedy);
}

}  // namespace fullwatt::engine
