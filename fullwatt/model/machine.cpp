#include "fullwatt/model/machine.hpp"

#include <algorithm>

namespace fullwatt::model {

bool Hardware::portable() const {
  constexpr int kPortableChassis[] = {8, 9, 10, 11, 14, 30, 31, 32};
  const bool chassis = chassis_type && std::ranges::find(kPortableChassis, *chassis_type) != std::end(kPortableChassis);
  return chassis || std::ranges::any_of(power_supplies, [](const auto& supply) { return supply.type == "Battery"; });
}

const DeviceNode* Driver::node(std::string_view path) const {
  const auto at = std::ranges::find(nodes, path, &DeviceNode::path);
  return at == nodes.end() ? nullptr : &*at;
}

const Service* Driver::service(std::string_view unit) const {
  const auto at = std::ranges::find(services, unit, &Service::unit);
  return at == services.end() ? nullptr : &*at;
}

bool Driver::running(std::string_view unit) const {
  const auto* found = service(unit);
  return found != nullptr && found->running;
}

const TorchInstall* Torch::active() const {
  for (const auto& install : installs) {
    if (!answers.file.empty() && answers.file.starts_with(install.site + "/")) return &install;
  }
  for (const auto& install : installs) {
    if (!interpreter.empty() && install.interpreter == interpreter) return &install;
  }
  return nullptr;
}

const GpuIdentity* Machine::gpu_by_bdf(std::string_view bdf) const {
  const auto at = std::ranges::find(gpus, bdf, &GpuIdentity::bdf);
  return at == gpus.end() ? nullptr : &*at;
}

const NvmlDevice* Machine::nvml_by_bdf(std::string_view bdf) const {
  for (const auto& device : nvml.devices) {
    if (device.bdf.is(std::string(bdf))) return &device;
  }
  return nullptr;
}

const CudaDevice* Machine::cuda_by_bdf(std::string_view bdf) const {
  const auto at = std::ranges::find(cuda.answers.devices, bdf, &CudaDevice::bdf);
  return at == cuda.answers.devices.end() ? nullptr : &*at;
}

std::string Machine::gpu_label(std::string_view bdf) const {
  const auto* gpu = gpu_by_bdf(bdf);
  const std::string name = gpu != nullptr && !gpu->name.empty() ? gpu->name : "NVIDIA GPU";
  return bdf.empty() ? name : name + " (" + std::string(bdf) + ")";
}

std::optional<std::string> Machine::variable(const std::string& name) const {
  if (!process) return host.variable(name);
  const auto at = process->environment.find(name);
  return at == process->environment.end() ? std::nullopt : std::optional(at->second);
}

}  // namespace fullwatt::model
