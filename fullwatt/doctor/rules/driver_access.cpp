// The module is loaded, and something between it and CUDA is not: device files, nvidia_uvm, the NVSwitch fabric, a
// licence.

#include <algorithm>
#include <array>
#include <cerrno>

#include "catalog/catalog.hpp"
#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/doctor/rules/driver_facts.hpp"

namespace fullwatt::doctor {
namespace {

using model::DeviceNode;
using model::Machine;
using model::Severity;
namespace cuda_code = model::cuda_code;

constexpr std::string_view kControl = "/dev/nvidiactl";
constexpr std::string_view kUvm = "/dev/nvidia-uvm";

std::string cuda_text(const Machine& machine) {
  const auto& init = machine.cuda.answers.init;
  return init ? fmt::format("{} {}", *init, catalog::cuda_code_name(*init)) : "not asked";
}

std::string nvml_text(const Machine& machine) {
  const auto& init = machine.nvml.init;
  return init ? fmt::format("{} {}", *init, catalog::nvml_code_name(*init)) : base::printable(init.error().detail, 120);
}

/// Device files that NVML needs and that are not there: the control file, then one for each GPU the module has taken.
std::vector<std::string> missing_nodes(const Machine& machine) {
  std::vector<std::string> missing;
  if (machine.driver.node(kControl) == nullptr) missing.emplace_back(kControl);
  for (const auto* gpu : unlisted_gpus(machine)) {
    const auto path = gpu->proc_minor ? fmt::format("/dev/nvidia{}", *gpu->proc_minor) : std::string{};
    if (gpu->driver.is("nvidia") && !path.empty() && machine.driver.node(path) == nullptr) missing.push_back(path);
  }
  return missing;
}

/// They are made on demand where nvidia-modprobe is installed: as long as NVML works, none is missing.
std::optional<Match> dev_nodes_missing(const Machine& machine) {
  if (!on_the_machine(machine) || !machine.driver.loaded || !nvml_was_asked(machine) ||
      unlisted_gpus(machine).empty()) {
    return std::nullopt;
  }
  const auto missing = missing_nodes(machine);
  if (missing.empty()) return std::nullopt;
  Match match;
  match.fact("path", missing.front());
  for (const auto& path : missing) match.saw("device file", "not there", path);
  const auto modify = machine.driver.params.find("ModifyDeviceFiles");
  if (modify != machine.driver.params.end())
    match.saw("ModifyDeviceFiles", modify->second, "/proc/driver/nvidia/params");
  return match.saw("module nvidia", "loaded", "/sys/module/nvidia").saw("nvmlInit", nvml_text(machine));
}

/// NVML needs the control file and one of a GPU, CUDA needs nvidia-uvm besides; the other files are for displays and
/// tools.
bool is_needed(const Machine& machine, const DeviceNode& node) {
  if (node.path == kControl) return !machine.nvml.works();
  if (node.path == kUvm) return !machine.cuda.works();
  return is_gpu_node(node) && nvml_was_asked(machine) && !nvml_lists_any(machine);
}

/// In a container the same has causes of its own.
std::optional<Match> dev_node_permission(const Machine& machine) {
  if (!on_the_machine(machine)) return std::nullopt;
  Match match;
  for (const auto& node : machine.driver.nodes) {
    if (!is_needed(machine, node) || !(node.open_error ? *node.open_error == EACCES : mode_denies(machine, node)))
      continue;
    match.fact("path", node.path);
    match.saw("owner and mode", fmt::format("uid {}, gid {}, {:04o}", node.uid, node.gid, node.mode), node.path);
  }
  if (match.evidence.empty()) return std::nullopt;
  match.saw("you",
            fmt::format("uid {}, groups {}", machine.host.system.uid, fmt::join(machine.host.system.groups, " ")));
  const auto mode = machine.driver.params.find("DeviceFileMode");
  if (mode != machine.driver.params.end()) match.saw("DeviceFileMode", mode->second, "/proc/driver/nvidia/params");
  return match;
}

bool uvm_node_fits(const Machine& machine) {
  const auto* node = machine.driver.node(kUvm);
  return node != nullptr && (!machine.driver.uvm_major || node->major == *machine.driver.uvm_major) &&
         !node->open_error.is(EPERM) && !node->open_error.is(EACCES);
}

/// NVML does without nvidia_uvm, CUDA does not: the codes are those that were seen without it.
std::optional<Match> uvm_not_loaded(const Machine& machine) {
  const auto& driver = machine.driver;
  if (!driver.loaded || driver.wsl.version != 0 || driver.node(kControl) == nullptr) return std::nullopt;
  if (!cuda_failed_with(machine, {cuda_code::kNotInitialized, cuda_code::kOperatingSystem, cuda_code::kSystemNotReady,
                                  cuda_code::kUnknown})) {
    return std::nullopt;
  }
  if (driver.uvm_loaded && driver.node(kUvm) != nullptr) return std::nullopt;
  Match match;
  match.saw("module nvidia_uvm", driver.uvm_loaded ? "loaded" : "not loaded", "/sys/module/nvidia_uvm");
  match.saw("device file", driver.node(kUvm) != nullptr ? "there" : "not there", std::string(kUvm));
  return match.saw("cuInit", cuda_text(machine));
}

bool has_xid(const Machine& machine) {
  return !kernel_line(machine, "NVRM: Xid").empty();
}

std::string sleep_line(const Machine& machine) {
  for (const auto* text : {"PM: suspend exit", "PM: suspend entry", "PM: resume", "PM: hibernation"}) {
    if (auto line = kernel_line(machine, text); !line.empty()) return line;
  }
  return {};
}

std::optional<Match> uvm_stale_after_suspend(const Machine& machine) {
  const auto& driver = machine.driver;
  const auto line = sleep_line(machine);
  const bool slept = driver.suspends.value_or(0) > 0 || !line.empty();
  if (!slept || !cuda_failed_with(machine, {cuda_code::kUnknown}) || has_xid(machine)) return std::nullopt;
  if (!driver.uvm_loaded || !uvm_node_fits(machine)) return std::nullopt;
  Match match;
  match.saw("cuInit", cuda_text(machine));
  if (driver.suspends)
    match.saw("times the machine slept", std::to_string(*driver.suspends), "/sys/power/suspend_stats/success");
  if (!line.empty()) match.saw("message", line, "kernel log");
  const auto preserve = driver.params.find("PreserveVideoMemoryAllocations");
  if (preserve != driver.params.end())
    match.saw("PreserveVideoMemoryAllocations", preserve->second, "/proc/driver/nvidia/params");
  return match;
}

/// GPUs that CUDA starts only after somebody has set up their NVSwitch fabric. In a VM the switches may be out of
/// sight.
bool needs_fabric(const Machine& machine) {
  const auto completed = [](const auto& device) { return device.fabric_state.is(3); };
  if (!machine.nvml.devices.empty() && std::ranges::all_of(machine.nvml.devices, completed)) return false;
  if (machine.hardware.nvswitches > 0 || machine.driver.node("/dev/nvidia-nvswitchctl") != nullptr) return true;
  const bool guest = !machine.driver.hypervisor.empty();
  return std::ranges::any_of(machine.nvml.devices, [&](const auto& device) {
    const bool waits = device.fabric_state.is(1) || device.fabric_state.is(2);
    return waits || (guest && base::contains(device.name.value_or(""), "SXM"));
  });
}

std::optional<Match> uvm_hmm_init_failure(const Machine& machine) {
  const auto& driver = machine.driver;
  if (!cuda_failed_with(machine, {cuda_code::kNotInitialized, cuda_code::kSystemNotReady}) || needs_fabric(machine))
    return std::nullopt;
  if (!driver.uvm_loaded || !uvm_node_fits(machine) || !driver.uvm_hmm_disabled.is(false)) return std::nullopt;
  if (machine.host.system.limit_address_space) return std::nullopt;  // too little address space fails alike
  Match match;
  match.fact("value", std::to_string(*machine.cuda.answers.init)).saw("cuInit", cuda_text(machine));
  match.saw("nvmlInit", nvml_text(machine))
      .saw("NVSwitches", std::to_string(machine.hardware.nvswitches), "/sys/bus/pci/devices");
  return match.saw("uvm_disable_hmm", "N", "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm")
      .saw("kernel", driver.kernel);
}

bool fabric_not_ready(const Machine& machine) {
  return needs_fabric(machine) && cuda_failed_with(machine, {cuda_code::kSystemNotReady});
}

Match& saw_fabric(Match& match, const Machine& machine) {
  constexpr std::array kStates{"not supported", "not started", "in progress", "completed"};
  match.saw("cuInit", cuda_text(machine))
      .saw("NVSwitches", std::to_string(machine.hardware.nvswitches), "/sys/bus/pci/devices");
  for (const auto& device : machine.nvml.devices) {
    if (!device.fabric_state || *device.fabric_state < 0 || *device.fabric_state > 3) continue;
    match.saw("fabric state", kStates.at(static_cast<std::size_t>(*device.fabric_state)),
              "GPU " + std::to_string(device.index));
  }
  return match;
}

const model::Service* mismatched_manager(const Machine& machine) {
  const auto* service = machine.driver.service("nvidia-fabricmanager");
  if (service == nullptr || service->version.empty() || !machine.driver.version) return nullptr;
  return base::Version(service->version) != base::Version(*machine.driver.version) ? service : nullptr;
}

std::optional<Match> fabric_manager_down(const Machine& machine) {
  if (!fabric_not_ready(machine) || mismatched_manager(machine) != nullptr) return std::nullopt;
  if (!machine.driver.uvm_loaded || !uvm_node_fits(machine)) return std::nullopt;
  const auto* service = machine.driver.service("nvidia-fabricmanager");
  Match match;
  match.saw("nvidia-fabricmanager", service == nullptr ? "not installed"
                                    : service->running ? "running"
                                                       : "not running");
  return saw_fabric(match, machine);
}

std::optional<Match> fabric_manager_version(const Machine& machine) {
  const auto* service = mismatched_manager(machine);
  if (service == nullptr || !fabric_not_ready(machine)) return std::nullopt;
  const auto version = service->version.substr(0, service->version.find('-'));
  Match match;
  match.fact("version", version).fact("driver_version", *machine.driver.version).fact("unit", service->unit);
  match.saw("fabric manager", service->version, "packages")
      .saw("driver", *machine.driver.version, "/sys/module/nvidia/version");
  match.saw("nvidia-fabricmanager", service->running ? "running" : "not running");
  return saw_fabric(match, machine);
}

/// GB200-class trays and machines without any fabric; on an HGX B200 the switches are no PCI devices, yet it needs one.
bool fabric_managed_elsewhere(const Machine& machine) {
  if (machine.hardware.nvswitches > 0 || machine.driver.node("/dev/nvidia-nvswitchctl") != nullptr) return false;
  return std::ranges::all_of(machine.nvml.devices, [](const auto& device) {
    const auto name = device.name.value_or("");
    return base::contains(name, "GB200") || base::contains(name, "GB300") || !device.fabric_state ||
           *device.fabric_state == 0;
  });
}

std::optional<Match> fabric_manager_not_applicable(const Machine& machine) {
  const auto* service = machine.driver.service("nvidia-fabricmanager");
  if (service == nullptr || machine.nvml.devices.empty() || !fabric_managed_elsewhere(machine)) return std::nullopt;
  Match match;
  match.fact("unit", service->unit).saw(service->unit, service->running ? "running" : "installed, not running");
  match.saw("NVSwitches", "0", "/sys/bus/pci/devices");
  for (const auto& line : service->log) {
    if (base::contains(line, "NV_WARN_NOTHING_TO_DO"))
      match.saw("message", base::printable(line, 200), "journal of " + service->unit);
  }
  return match;
}

/// A display keeps the driver awake, and a laptop should let its GPU sleep.
std::optional<Match> persistence_off(const Machine& machine) {
  if (machine.driver.wsl.version != 0 || machine.hardware.portable()) return std::nullopt;
  if (machine.driver.running("nvidia-persistenced")) return std::nullopt;
  const auto shows = [](const auto& device) { return device.display_active.is(true); };
  if (std::ranges::any_of(machine.nvml.devices, shows)) return std::nullopt;
  Match match;
  for (const auto& device : machine.nvml.devices) {
    if (device.persistence.is(false)) match.saw("persistence", "off", "GPU " + std::to_string(device.index));
  }
  if (match.evidence.empty()) return std::nullopt;
  return match.saw("nvidia-persistenced",
                   machine.driver.service("nvidia-persistenced") != nullptr ? "not running" : "not installed");
}

std::optional<Match> vgpu_unlicensed(const Machine& machine) {
  constexpr int kVgpu = 2;
  const bool refused = cuda_failed_with(machine, {cuda_code::kNotLicensed}) ||
                       std::ranges::any_of(machine.cuda.answers.devices, [](const auto& device) {
                         return device.context.is(cuda_code::kNotLicensed);
                       });
  Match match;
  for (const auto& device : machine.nvml.devices) {
    if (!device.virtualization.is(kVgpu) || (!device.vgpu_licensed.is(false) && !refused)) continue;
    match.about(machine, device.bdf.value_or("")).saw("licence", "none", "GPU " + std::to_string(device.index));
  }
  if (match.evidence.empty() && !refused) return std::nullopt;
  if (refused) match.saw("CUDA", "102 CUDA_ERROR_DEVICE_NOT_LICENSED").severity = Severity::error;
  match.saw("nvidia-gridd", machine.driver.running("nvidia-gridd") ? "running" : "not running");
  return match;
}

std::optional<Match> smi_banner_renamed(const Machine& machine) {
  constexpr int kFirstBranch = 610;
  const auto version = machine.nvml.driver_version.value_or(machine.driver.version.value_or(""));
  if (base::Version(version).major() < kFirstBranch) return std::nullopt;
  return Match{}.fact("driver_version", version).saw("driver", version);
}

constexpr std::array kRules{
    Rule{"dev-nodes-missing", kPci, dev_nodes_missing},
    Rule{"dev-node-permission", kNothing, dev_node_permission},
    Rule{"uvm-not-loaded", kCuda, uvm_not_loaded},
    Rule{"uvm-stale-after-suspend", kCuda | kNvml, uvm_stale_after_suspend},
    Rule{"uvm-hmm-init-failure", kCuda | kNvml, uvm_hmm_init_failure},
    Rule{"fabric-manager-down", kCuda | kNvml, fabric_manager_down},
    Rule{"fabric-manager-version", kCuda | kNvml, fabric_manager_version},
    Rule{"fabric-manager-not-applicable", kNvml, fabric_manager_not_applicable},
    Rule{"persistence-off", kNvml, persistence_off},
    Rule{"vgpu-unlicensed", kNvml, vgpu_unlicensed},
    Rule{"smi-banner-renamed", kNvml, smi_banner_renamed},
};

}  // namespace

std::span<const Rule> driver_access_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
