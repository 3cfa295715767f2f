// What stands between the GPUs of one training.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/rules/process_facts.hpp"
#include "fullwatt/doctor/rules/rule.hpp"
#include "fullwatt/doctor/rules/torch_facts.hpp"

namespace fullwatt::doctor {
namespace {

using base::contains;
using model::Machine;
using model::Severity;

std::size_t gpu_count(const Machine& machine) {
  return machine.cuda.answers.devices.size();
}

bool some_are_peers(const Machine& machine) {
  return std::ranges::any_of(machine.cuda.answers.devices, [](const auto& device) { return !device.peers.empty(); });
}

/// NVSwitch carries the traffic between the GPUs; PCIe does not matter to it.
bool has_fabric(const Machine& machine) {
  const auto joined = [](const auto& device) { return device.fabric_state.is(3); };
  return machine.hardware.nvswitches > 0 || std::ranges::any_of(machine.nvml.devices, joined);
}

bool iommu_translates(const Machine& machine) {
  const auto& command_line = machine.driver.kernel_command_line;
  const bool passes = contains(command_line, "iommu=pt") || contains(command_line, "iommu.passthrough=1");
  return machine.host.iommu && !passes;
}

std::optional<Match> p2p_acs_hang(const Machine& machine) {
  if (!some_are_peers(machine) || has_fabric(machine) || !iommu_translates(machine)) return std::nullopt;
  Match match;
  for (const auto* gpu : machine.hardware.nvidia()) {
    if (gpu->redirecting_bridges.empty()) continue;
    match.saw("bridge that redirects peer traffic of " + machine.gpu_label(gpu->bdf), gpu->redirecting_bridges.back(),
              "/sys/bus/pci/devices/" + gpu->redirecting_bridges.back() + "/config");
  }
  if (match.evidence.size() < 2) return std::nullopt;
  return match.saw("IOMMU", "on, not in passthrough mode", "/sys/class/iommu, /proc/cmdline");
}

std::optional<Match> p2p_not_available(const Machine& machine) {
  constexpr std::size_t kShown = 4;
  Match match;
  const auto& devices = machine.cuda.answers.devices;
  for (const auto& device : devices) {
    for (const auto& other : devices) {
      const bool counted = device.ordinal < other.ordinal && !device.uuid.starts_with("MIG-");
      if (!counted || std::ranges::find(device.peers, other.ordinal) != device.peers.end()) continue;
      if (match.evidence.size() < kShown)
        match.saw("no direct access", device.bdf + " to " + other.bdf, "cuDeviceCanAccessPeer");
    }
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

/// NCCL's own rule: names that begin with one of the words; ^ excludes them, = wants them whole.
bool passes_filter(std::string_view filter, std::string_view interface) {
  const bool excludes = filter.starts_with('^');
  if (excludes) filter.remove_prefix(1);
  const bool whole = filter.starts_with('=');
  if (whole) filter.remove_prefix(1);
  const auto fits = [&](auto word) { return whole ? interface == word : interface.starts_with(word); };
  return std::ranges::any_of(base::split(filter, ','), fits) != excludes;
}

/// Interfaces that do not leave the machine.
bool stays_inside(const std::string& interface) {
  return interface == "lo" || interface.starts_with("docker") || interface.starts_with("virbr");
}

std::vector<std::string> chosen_interfaces(const Machine& machine, std::string_view filter) {
  std::vector<std::string> chosen;
  for (const auto& interface : machine.host.system.interfaces) {
    if (passes_filter(filter, interface)) chosen.push_back(interface);
  }
  return chosen;
}

std::optional<Match> nccl_wrong_interface(const Machine& machine) {
  const auto filter = machine.variable("NCCL_SOCKET_IFNAME");
  const auto& all = machine.host.system.interfaces;
  if (!filter || base::trim(*filter).empty() || all.empty()) return std::nullopt;
  const auto chosen = chosen_interfaces(machine, *filter);
  const bool useless = several_machines(machine) && std::ranges::all_of(chosen, stays_inside);
  if (!chosen.empty() && !useless) return std::nullopt;
  Match match;
  match.fact("value", base::printable(*filter, 80));
  match.saw("NCCL_SOCKET_IFNAME", base::printable(*filter, 80), environment_source(machine));
  match.saw("interfaces that are up and have an address", base::join(all, " "));
  const bool used = gpu_count(machine) > 1 || variable_number(machine, "WORLD_SIZE").value_or(1) > 1;
  if (!used && !log_shows(machine, "nccl-wrong-interface")) match.severity = Severity::warning;
  return match;
}

std::optional<Match> nccl_disabled_transports(const Machine& machine) {
  const std::array switches{
      std::pair{"NCCL_P2P_DISABLE", some_are_peers(machine)},
      std::pair{"NCCL_SHM_DISABLE", gpu_count(machine) > 1},
      std::pair{"NCCL_IB_DISABLE", several_machines(machine)},
  };
  Match match;
  for (const auto& [name, matters] : switches) {
    if (!matters || variable_number(machine, name).value_or(0) == 0) continue;
    match.fact("variable", name).saw(name, *machine.variable(name), environment_source(machine));
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

bool is_exclusive(const model::NvmlDevice& device) {
  constexpr int kExclusiveProcess = 3;
  return device.compute_mode.is(kExclusiveProcess);
}

/// A rank that holds a GPU of another one; which is whose is only known while all GPUs are visible.
bool on_foreign_gpu(const Machine& machine, const std::vector<const model::NvmlDevice*>& used) {
  const auto rank = variable_number(machine, "LOCAL_RANK");
  if (used.size() > 1) return true;
  return rank && !machine.variable("CUDA_VISIBLE_DEVICES") && used.front()->index != *rank;
}

std::optional<Match> nccl_exclusive_mode(const Machine& machine) {
  const auto used = devices_used_by(machine, machine.process->pid);
  const auto exclusive = [](const auto* device) { return is_exclusive(*device); };
  const bool distributed = variable_number(machine, "LOCAL_WORLD_SIZE").value_or(1) > 1;
  if (!distributed || used.empty() || !std::ranges::any_of(used, exclusive) || !on_foreign_gpu(machine, used))
    return std::nullopt;
  Match match;
  for (const auto* device : used) {
    match.saw("the process holds", machine.gpu_label(device->bdf.value_or("")), "NVML");
  }
  match.saw("compute mode", "3, exclusive process", "NVML");
  match.saw("LOCAL_RANK", machine.variable("LOCAL_RANK").value_or("not set"), environment_source(machine));
  return match.saw("LOCAL_WORLD_SIZE", *machine.variable("LOCAL_WORLD_SIZE"), environment_source(machine));
}

constexpr std::array kRules{
    Rule{"p2p-acs-hang", kCuda, p2p_acs_hang},
    Rule{"p2p-not-available", kCuda, p2p_not_available},
    Rule{"nccl-wrong-interface", kNothing, nccl_wrong_interface},
    Rule{"nccl-disabled-transports", kNothing, nccl_disabled_transports},
    Rule{"nccl-exclusive-mode", kProcess, nccl_exclusive_mode},
};

}  // namespace

std::span<const Rule> application_peer_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
