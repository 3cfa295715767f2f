// Layer 1: whether the GPU is on the bus, awake, and well connected.

#include <algorithm>
#include <array>

#include "catalog/catalog.hpp"
#include <fmt/format.h>

#include "fullwatt/base/pattern.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/rules/driver_facts.hpp"
#include "fullwatt/doctor/rules/gpu_state.hpp"
#include "fullwatt/doctor/rules/rule.hpp"

namespace fullwatt::doctor {
namespace {

using model::Machine;
using model::PciGpu;

std::string folder_of(const PciGpu& gpu) {
  return "/sys/bus/pci/devices/" + gpu.bdf;
}

/// A bus without an NVIDIA GPU, on a machine where GPUs are PCI devices.
bool bus_lacks_gpu(const Machine& machine) {
  return machine.hardware.nvidia().empty() && machine.driver.wsl.version == 0 && !machine.hardware.soc_tegra &&
         machine.nvml.devices.empty() && machine.cuda.answers.devices.empty();
}

bool switched_off(const Machine& machine) {
  return machine.hardware.vendor_dgpu_disabled.is(true) || !machine.hardware.integrated_modes.empty();
}

std::optional<Match> gpu_absent_from_pci(const Machine& machine) {
  if (!bus_lacks_gpu(machine) || !gpu_expected(machine)) return std::nullopt;
  if (switched_off(machine) || !machine.hardware.removal_rules.empty()) return std::nullopt;
  Match match;
  match.saw("NVIDIA display devices on the PCI bus", "0", "/sys/bus/pci/devices");
  for (const auto& gpu : machine.hardware.gpus) match.saw("display device", gpu.name + " " + gpu.bdf, folder_of(gpu));
  for (const auto& line : kernel_lines(machine, "NVRM: No NVIDIA PCI devices found")) saw_line(match, line);
  if (!machine.driver.module_files.empty()) match.saw("installed driver", machine.driver.module_files.front());
  if (!machine.driver.hypervisor.empty()) match.saw("virtual machine of", machine.driver.hypervisor, "/proc/cpuinfo");
  return match;
}

std::optional<Match> gpu_removed_by_udev_rule(const Machine& machine) {
  if (!bus_lacks_gpu(machine) || machine.hardware.removal_rules.empty()) return std::nullopt;
  Match match;
  for (const auto& rule : machine.hardware.removal_rules) {
    match.fact("path", rule.path);
    match.saw("rule", base::printable(rule.text, 200), fmt::format("{}:{}", rule.path, rule.line));
  }
  return match;
}

std::optional<Match> mux_igpu_only(const Machine& machine) {
  if (!bus_lacks_gpu(machine) || !switched_off(machine)) return std::nullopt;
  Match match;
  if (machine.hardware.vendor_dgpu_disabled.is(true)) {
    match.saw("dgpu_disable", "1", "the laptop's firmware");
  }
  for (const auto& mode : machine.hardware.integrated_modes) {
    match.saw("setting", base::printable(mode.text, 120), fmt::format("{}:{}", mode.path, mode.line));
  }
  return match;
}

/// Whether the driver powers the GPU down while it is idle. Of a GPU that it has not started it says "?"; then its
/// setting counts, which leaves the choice to the driver by default, and that takes it for notebooks.
bool uses_runtime_d3(const Machine& machine, const PciGpu& gpu) {
  if (gpu.proc_runtime_d3 && *gpu.proc_runtime_d3 != "?") return gpu.proc_runtime_d3->starts_with("Enabled");
  const auto setting = machine.driver.params.find("DynamicPowerManagement");
  if (setting == machine.driver.params.end()) return gpu.asleep();
  return setting->second == "1" || setting->second == "2" || (setting->second == "3" && machine.hardware.portable());
}

/// A sleeping GPU that was asked and gave no answer. Codes that have their reason elsewhere do not count.
bool stayed_asleep(const Machine& machine, const PciGpu& gpu) {
  const auto& init = machine.nvml.init;
  if (!gpu.asleep() || machine.nvml_by_bdf(gpu.bdf) != nullptr) return false;
  if (!init) return init.error().reason == base::Absent::timed_out;
  return *init == model::nvml_code::kSuccess || *init == model::nvml_code::kGpuIsLost ||
         *init == model::nvml_code::kGpuNotFound || *init == model::nvml_code::kUnknown;
}

void saw_failed_wake(Match& match, const Machine& machine, const PciGpu& gpu) {
  if (gpu.runtime_status.is("error"))
    match.saw("runtime power state", "error", folder_of(gpu) + "/power/runtime_status");
  for (const auto& line : kernel_lines(machine, "change power state from D3cold to D0")) {
    if (base::contains(line, gpu.bdf)) return saw_line(match, line);
  }
  if (stayed_asleep(machine, gpu)) match.saw("asked while asleep", "no answer", "NVML");
  const bool forgotten = gpu.proc_video_bios && gpu.proc_video_bios->starts_with("??");
  for (const auto& xid : xids(machine, {119, 120})) {
    if (!forgotten || xid.bdf != gpu.bdf) continue;
    match.saw("Video BIOS", *gpu.proc_video_bios, "/proc/driver/nvidia/gpus/" + gpu.bdf + "/information");
    return saw_line(match, xid.line);
  }
}

std::optional<Match> rtd3_wake_failure(const Machine& machine) {
  Match match;
  for (const auto* gpu : machine.hardware.nvidia()) {
    if (!uses_runtime_d3(machine, *gpu) || works_now(machine, gpu->bdf)) continue;
    const auto before = match.evidence.size();
    saw_failed_wake(match, machine, *gpu);
    if (match.evidence.size() == before) continue;
    match.about(machine, gpu->bdf);
    match.saw("Runtime D3", gpu->proc_runtime_d3.value_or("on"), "/proc/driver/nvidia/gpus/" + gpu->bdf + "/power");
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

std::optional<Match> gpu_runtime_suspended(const Machine& machine) {
  if (rtd3_wake_failure(machine)) return std::nullopt;
  Match match;
  for (const auto* gpu : machine.hardware.nvidia()) {
    if (!gpu->asleep()) continue;
    match.about(machine, gpu->bdf);
    match.saw("power state", gpu->power_state.value_or("unknown"), folder_of(*gpu) + "/power_state");
    match.saw("runtime power state", gpu->runtime_status.value_or("unknown"),
              folder_of(*gpu) + "/power/runtime_status");
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

/// BAR1 is the second register of every NVIDIA GPU. A kernel that found no room leaves it without an address.
/// The window to the GPU's memory: the second register, behind a first one that takes two slots when it is 64 bits wide
/// (IORESOURCE_MEM_64). Null where the kernel does not tell addresses.
const model::Bar* memory_window(const PciGpu& gpu) {
  constexpr std::uint64_t kIs64Bit = 0x100000;
  if (gpu.bars.size() < 3 || !gpu.bars[0].assigned()) return nullptr;
  return &gpu.bars[(gpu.bars[0].flags & kIs64Bit) != 0 ? 2 : 1];
}

std::optional<Match> bar_not_assigned(const Machine& machine) {
  Match match;
  for (const auto* gpu : machine.hardware.nvidia()) {
    const auto* window = memory_window(*gpu);
    if (window == nullptr || window->assigned()) continue;
    if (gpu->asleep() || gpu->config_all_ones || machine.nvml_by_bdf(gpu->bdf) != nullptr) continue;
    match.about(machine, gpu->bdf);
    match.saw("BAR1", "no address", folder_of(*gpu) + "/resource");
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

/// A GPU that was gone when the driver first looked: a message of several lines, whose first one names it.
void saw_lost_at_probe(Match& match, const Machine& machine) {
  std::string address;
  for (const auto& line : kernel_lines(machine, "NVRM:")) {
    if (const auto named = base::match("NVRM: The NVIDIA GPU {bdf}", line)) address = named->at("bdf").substr(0, 12);
    if (address.empty() || !base::contains(line, "fallen off the bus and is not responding")) continue;
    match.about(machine, address);
    saw_line(match, line);
  }
}

void saw_lost_now(Match& match, const Machine& machine) {
  for (const auto* gpu : machine.hardware.nvidia()) {
    if (!gpu->config_all_ones) continue;
    match.about(machine, gpu->bdf);
    match.saw("PCI configuration space", "reads all ones", folder_of(*gpu) + "/config");
  }
  saw_code(match, machine, model::nvml_code::kGpuIsLost);
  if (machine.nvml.init.is(model::nvml_code::kGpuIsLost)) match.saw("nvmlInit", "15 GPU is lost", "NVML");
  saw_lost_at_probe(match, machine);
}

std::optional<Match> gpu_fell_off_bus(const Machine& machine) {
  Match match;
  saw_lost_now(match, machine);
  const auto logged = xids(machine, {79});
  if (match.evidence.empty() && over(machine, "gpu-fell-off-bus", logged)) match.severity = model::Severity::warning;
  saw_xids(match, machine, logged);
  if (match.evidence.empty()) return std::nullopt;
  const auto gpus = machine.hardware.nvidia();
  if (gpus.size() == 1) match.about(machine, gpus.front()->bdf);
  return match.fact("gpu", "GPU").fact("index", "N");
}

std::optional<Match> aux_power_missing(const Machine& machine) {
  Match match;
  return saw_code(match, machine, model::nvml_code::kInsufficientPower) ? std::optional(match) : std::nullopt;
}

/// How wide a link is, and how wide card and port could make it.
struct LinkWidth {
  int current = 0;
  int card = 0;
  base::Reading<int> port;
};

std::optional<LinkWidth> link_width(const Machine& machine, const PciGpu& gpu) {
  if (gpu.asleep() || gpu.config_all_ones) return std::nullopt;
  if (gpu.link_width && gpu.max_link_width) return LinkWidth{*gpu.link_width, *gpu.max_link_width, gpu.port_max_width};
  const auto* device = machine.nvml_by_bdf(gpu.bdf);
  if (device == nullptr || !device->pcie_width || !device->pcie_max_width) return std::nullopt;
  // NVML's maximum is that of card and slot together.
  return LinkWidth{*device->pcie_width, *device->pcie_max_width, device->pcie_max_width};
}

/// A slot that is wired with half the lanes, or a laptop's or virtual machine's link, is as its maker meant it.
bool by_design(const Machine& machine, const LinkWidth& link) {
  if (!machine.driver.hypervisor.empty()) return true;
  const bool slot_is_full = link.port && link.current >= *link.port;
  return slot_is_full && (machine.hardware.portable() || link.current * 2 >= link.card);
}

std::optional<Match> pcie_width_reduced(const Machine& machine) {
  Match match;
  bool fault = false;
  for (const auto* gpu : machine.hardware.nvidia()) {
    const auto link = link_width(machine, *gpu);
    if (!link || link->current >= link->card) continue;
    // The words tell of the first one; a real fault goes before a narrow slot.
    const bool first_fault = !fault && !by_design(machine, *link);
    if (first_fault) match.facts.clear();
    fault = fault || first_fault;
    match.about(machine, gpu->bdf)
        .fact("value", std::to_string(link->current))
        .fact("expected", std::to_string(link->card));
    match.saw("PCIe lanes in use", fmt::format("{} of {}", link->current, link->card),
              folder_of(*gpu) + "/current_link_width");
    if (link->port)
      match.saw("lanes of the port above", std::to_string(*link->port),
                gpu->bridges.empty() ? "NVML" : gpu->bridges.back());
    for (const auto& line : kernel_lines(machine, "available PCIe bandwidth")) {
      if (base::contains(line, gpu->bdf)) saw_line(match, line);
    }
  }
  if (match.evidence.empty()) return std::nullopt;
  if (!fault) match.severity = model::Severity::note;
  return match;
}

/// What the kernel's error reporting counted on a GPU and on the port it hangs on.
struct LinkErrors {
  int corrected = 0;
  int uncorrected = 0;
  std::string example;
};

LinkErrors link_errors(const Machine& machine, const PciGpu& gpu) {
  LinkErrors errors;
  for (const auto& line : kernel_lines(machine, "PCIe Bus Error: severity=")) {
    const bool at_port = !gpu.bridges.empty() && base::contains(line, gpu.bridges.back());
    if (!at_port && !base::contains(line, gpu.bdf)) continue;
    const bool corrected = base::contains(line, "severity=Correct");
    corrected ? ++errors.corrected : ++errors.uncorrected;
    if (errors.example.empty() || !corrected) errors.example = line;
  }
  return errors;
}

/// A few repaired packets are normal, most of all while the link changes its speed.
std::optional<Match> pcie_signal_errors(const Machine& machine) {
  constexpr int kManyCorrected = 5;
  constexpr int kManyReplays = 100'000;
  Match match;
  for (const auto* gpu : machine.hardware.nvidia()) {
    const auto errors = link_errors(machine, *gpu);
    const auto* device = machine.nvml_by_bdf(gpu->bdf);
    const int replays = device != nullptr ? device->pcie_replays.value_or(0) : 0;
    if (errors.uncorrected == 0 && errors.corrected < kManyCorrected && replays < kManyReplays) continue;
    match.about(machine, gpu->bdf);
    match.saw("PCIe errors reported", fmt::format("{} corrected, {} not", errors.corrected, errors.uncorrected),
              "kernel log");
    if (!errors.example.empty()) saw_line(match, errors.example);
    if (replays > 0) match.saw("repeated packets", std::to_string(replays), "NVML");
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

/// GPUs on the bus that the NVIDIA driver should have brought up: not those given to another driver, left out on
/// purpose, or of a generation that this driver does not serve.
std::vector<const PciGpu*> meant_for_driver(const Machine& machine) {
  auto gpus = machine.hardware.nvidia();
  std::erase_if(gpus, [&](const PciGpu* gpu) {
    const bool taken = gpu->driver && *gpu->driver != "nvidia";
    return taken || gpu->proc_excluded.is("Yes") || gpu->asleep() || !driver_serves(machine, *gpu);
  });
  return gpus;
}

/// Why a GPU counts as failed, empty when nothing speaks for it: one that the driver started and NVML does not list was
/// given to somebody else, by a container or a batch system.
std::string failure(const Machine& machine, const PciGpu& gpu) {
  for (const auto& device : machine.nvml.devices) {
    const int code = device.handle_code;
    const bool failed = code != model::nvml_code::kSuccess && code != model::nvml_code::kNoPermission;
    if (failed && address_of(machine, device) == gpu.bdf) {
      return fmt::format("NVML answers {} {}", code, catalog::nvml_code_name(code));
    }
  }
  if (gpu.config_all_ones) return "does not answer on the bus";
  if (!gpu.proc_model) return "not taken by the driver";
  return gpu.proc_video_bios && gpu.proc_video_bios->starts_with("??") ? "not started by the driver" : "";
}

std::optional<Match> gpu_count_short(const Machine& machine) {
  if (machine.driver.container.inside() || machine.variable("SLURM_JOB_ID")) return std::nullopt;
  Match match;
  std::size_t working = 0;
  for (const auto* gpu : meant_for_driver(machine)) {
    const auto* device = machine.nvml_by_bdf(gpu->bdf);
    if (device != nullptr && device->handle_code == 0) {
      ++working;
    } else if (const auto why = failure(machine, *gpu); !why.empty()) {
      match.about(machine, gpu->bdf).saw(machine.gpu_label(gpu->bdf), why, "/proc/driver/nvidia/gpus/" + gpu->bdf);
    }
  }
  if (match.evidence.empty() || working == 0) return std::nullopt;
  match.fact("count", std::to_string(working)).fact("expected", std::to_string(working + match.evidence.size()));
  for (const auto& line : kernel_lines(machine, "NVRM: The NVIDIA probe routine failed")) saw_line(match, line);
  return match;
}

std::optional<Match> gpu_excluded_by_param(const Machine& machine) {
  Match match;
  for (const auto* gpu : machine.hardware.nvidia()) {
    if (!gpu->proc_excluded.is("Yes")) continue;
    match.about(machine, gpu->bdf);
    match.saw("GPU Excluded", "Yes", "/proc/driver/nvidia/gpus/" + gpu->bdf + "/information");
  }
  if (match.evidence.empty()) return std::nullopt;
  const auto option = machine.driver.params.find("ExcludedGpus");
  if (option != machine.driver.params.end())
    match.saw("ExcludedGpus", base::printable(option->second, 200), "/proc/driver/nvidia/params");
  return match;
}

constexpr std::array kRules{
    Rule{"gpu-absent-from-pci", kPci, gpu_absent_from_pci},
    Rule{"gpu-removed-by-udev-rule", kPci, gpu_removed_by_udev_rule},
    Rule{"mux-igpu-only", kPci, mux_igpu_only},
    Rule{"gpu-runtime-suspended", kPci, gpu_runtime_suspended},
    Rule{"rtd3-wake-failure", kPci, rtd3_wake_failure},
    Rule{"bar-not-assigned", kPci, bar_not_assigned},
    Rule{"gpu-fell-off-bus", kNothing, gpu_fell_off_bus},
    Rule{"aux-power-missing", kNothing, aux_power_missing},
    Rule{"pcie-width-reduced", kPci, pcie_width_reduced},
    Rule{"pcie-signal-errors", kPci, pcie_signal_errors},
    Rule{"gpu-count-short", kNvml, gpu_count_short},
    Rule{"gpu-excluded-by-param", kPci, gpu_excluded_by_param},
};

}  // namespace

std::span<const Rule> hardware_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
