#include "fullwatt/doctor/rules/torch_facts.hpp"

#include <algorithm>

#include "catalog/catalog.hpp"

#include "fullwatt/base/pattern.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"

namespace fullwatt::doctor {
namespace {

using model::Machine;

/// "2.11.0+rocm6.4" → "rocm6.4": the local part of a version says for whom it was built.
std::string local_tag(std::string_view version, std::string_view vendor) {
  const auto at = version.find("+" + std::string(vendor));
  return at == std::string_view::npos ? std::string{} : std::string(version.substr(at + 1));
}

std::string capability_of(const Machine& machine, const model::PciGpu& gpu) {
  if (const auto* device = machine.nvml_by_bdf(gpu.bdf); device != nullptr && device->compute_capability) {
    return *device->compute_capability;
  }
  const auto* architecture = catalog::architecture_of(gpu.device);
  return architecture == nullptr ? std::string{} : std::string(architecture->compute_capability);
}

/// Old GPUs are served by wheels that serve younger ones too, up to Blackwell, which needs the newest.
std::string deciding_capability(const Machine& machine) {
  std::vector<std::string> all;
  for (const auto& gpu : torch_gpus(machine)) {
    if (!gpu.compute_capability.empty()) all.push_back(gpu.compute_capability);
  }
  if (all.empty()) return {};
  const auto version = [](const std::string& text) { return base::Version(text); };
  const auto [lowest, highest] = std::ranges::minmax(all, {}, version);
  return base::Version(highest) >= base::Version("10.0") ? highest : lowest;
}

}  // namespace

bool nvidia_gpu_present(const Machine& machine) {
  return !machine.hardware.nvidia().empty() || !machine.nvml.devices.empty() || machine.driver.wsl.dxg ||
         machine.hardware.soc_tegra;
}

std::optional<TorchBuild> torch_build(const Machine& machine) {
  const auto& answers = machine.torch.answers;
  if (answers.version) {
    return TorchBuild{*answers.version, answers.cuda, answers.hip, answers.xpu,
                      std::string(base::folder_of(answers.file))};
  }
  const auto* install = machine.torch.active();
  if (install == nullptr || install->version.empty()) return std::nullopt;
  return TorchBuild{install->version, install->cuda, local_tag(install->version, "rocm"),
                    local_tag(install->version, "xpu"), install->site + "/torch"};
}

std::vector<TorchGpu> torch_gpus(const Machine& machine) {
  std::vector<TorchGpu> gpus;
  gpus.reserve(machine.torch.answers.devices.size());
  for (const auto& device : machine.torch.answers.devices) {
    gpus.push_back({device.name, device.compute_capability, device.operation.is("ok")});
  }
  if (!gpus.empty()) return gpus;
  for (const auto& device : machine.cuda.answers.devices) gpus.push_back({device.name, device.compute_capability});
  if (!gpus.empty()) return gpus;
  for (const auto* gpu : machine.hardware.nvidia()) gpus.push_back({gpu->name, capability_of(machine, *gpu)});
  if (!gpus.empty()) return gpus;
  for (const auto& device : machine.nvml.devices) {
    gpus.push_back({device.name.value_or(""), device.compute_capability.value_or("")});
  }
  return gpus;
}

std::string fitting_wheel(const Machine& machine) {
  const auto driver = machine.driver.version.value_or(machine.nvml.driver_version.value_or(""));
  return std::string(catalog::wheel_for(driver, deciding_capability(machine)));
}

Match& add_install_facts(const Machine& machine, Match& match) {
  match.fact("python", machine.torch.interpreter.empty() ? "python3" : machine.torch.interpreter);
  return match.fact("index_tag", fitting_wheel(machine));
}

std::optional<std::string> log_line(const Machine& machine, std::string_view id) {
  const auto* entry = catalog::find(id);
  if (entry == nullptr || !machine.log) return std::nullopt;
  for (const auto& line : *machine.log) {
    const auto fits = [&](auto pattern) { return base::match(pattern, line).has_value(); };
    if (std::ranges::any_of(entry->training_log, fits)) return line;
  }
  return std::nullopt;
}

bool log_shows(const Machine& machine, std::string_view id) {
  return log_line(machine, id).has_value();
}

std::string environment_source(const Machine& machine) {
  return machine.process ? "/proc/" + std::to_string(machine.process->pid) + "/environ" : "environment";
}

std::optional<std::string> captured_in_log(const Machine& machine, std::string_view pattern, const std::string& name) {
  if (!machine.log) return std::nullopt;
  for (const auto& line : *machine.log) {
    const auto captures = base::match(pattern, line);
    if (captures && captures->contains(name)) return base::printable(base::trim(captures->at(name)), 120);
  }
  return std::nullopt;
}

}  // namespace fullwatt::doctor
