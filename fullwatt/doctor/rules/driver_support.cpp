// The driver does not serve this GPU: wrong branch, wrong flavour of the module, or it fails to start it.

#include <algorithm>
#include <array>

#include "catalog/catalog.hpp"
#include <fmt/format.h>

#include "fullwatt/base/pattern.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/doctor/rules/driver_facts.hpp"

namespace fullwatt::doctor {
namespace {

using model::Machine;
using model::PciGpu;
using model::Severity;

/// Last branch for Maxwell, Pascal and Volta; what ends before it is older than any PyTorch.
constexpr int kLegacyBranch = 580;

/// What the kernel log says of the GPU at this address in the block of lines around `text`; empty when nothing.
std::string refusal(const Machine& machine, const std::string& bdf, std::string_view text) {
  if (!machine.driver.kernel_log) return {};
  const auto& log = *machine.driver.kernel_log;
  for (std::size_t i = 0; i < log.size(); ++i) {
    if (!base::contains(log[i], text)) continue;
    for (std::size_t back = 0; back <= std::min<std::size_t>(i, 2); ++back) {
      const auto captures = base::match("NVRM: The NVIDIA GPU {bdf} (PCI ID", log[i - back]);
      if (captures && captures->at("bdf") == bdf) return log[i];
    }
  }
  return {};
}

std::string generation_text(const PciGpu& gpu) {
  const auto* generation = catalog::architecture_of(gpu.device);
  return fmt::format("10de:{:04x}{}", gpu.device,
                     generation != nullptr ? ", " + std::string(generation->name) : std::string{});
}

/// Version of the driver that refused the GPU: the installed one, else as the module named itself in the log.
std::string refusing_version(const Machine& machine) {
  if (auto version = driver_version(machine); !version.empty()) return version;
  for (const std::string_view pattern :
       {"information.  The {version} NVIDIA driver will", "NVRM: NVIDIA {version} driver release"}) {
    if (const auto captures = base::match(pattern, kernel_line(machine, pattern.substr(0, pattern.find('{'))))) {
      return base::printable(captures->at("version"), 40);
    }
  }
  return "of this branch";
}

/// Its branch; 0 when nothing names it.
int refusing_branch(const Machine& machine) {
  return base::Version(refusing_version(machine)).major();
}

Match& blame(Match& match, const Machine& machine, const PciGpu& gpu, const std::string& line) {
  match.about(machine, gpu.bdf).fact("driver_version", refusing_version(machine));
  match.saw("PCI device " + gpu.bdf, generation_text(gpu), "/sys/bus/pci/devices/" + gpu.bdf + "/device");
  if (!line.empty()) match.saw("message", line, "kernel log");
  return match;
}

Match& saw_driver(Match& match, const Machine& machine) {
  const auto flavour = module_flavour(machine);
  return match.saw("driver", refusing_version(machine) + (flavour.empty() ? "" : ", " + flavour + " kernel module"),
                   machine.driver.loaded ? "/proc/driver/nvidia/version" : "");
}

/// GPUs whose last branch lies in a range that the installed driver has left behind.
std::optional<Match> left_behind(const Machine& machine, int after, int last,
                                 std::initializer_list<std::string_view> texts) {
  const auto branch = refusing_branch(machine);
  Match match;
  std::string line;
  for (const auto text : texts) {
    if (line.empty()) line = kernel_line(machine, text);
  }
  for (const auto* gpu : unlisted_gpus(machine)) {
    const auto* generation = catalog::architecture_of(gpu->device);
    if (reserved_for_vm(*gpu) || machine.driver.wsl.version != 0) continue;
    const bool named = generation == nullptr && !line.empty() && !gpu->driver.is("nvidia");
    const bool ended = generation != nullptr && generation->last_branch > after && generation->last_branch <= last;
    if (named || (ended && branch > generation->last_branch)) blame(match, machine, *gpu, line);
  }
  if (match.evidence.empty()) return std::nullopt;
  saw_driver(match, machine);
  return match;
}

std::optional<Match> gpu_needs_580_legacy(const Machine& machine) {
  auto match = left_behind(machine, kLegacyBranch - 1, kLegacyBranch, {"through the NVIDIA 580.xx Legacy drivers"});
  if (match && nvml_lists_any(machine)) match->severity = Severity::warning;
  return match;
}

/// Beside a GPU that works such a card is there for the display.
std::optional<Match> gpu_needs_470_legacy(const Machine& machine) {
  auto match = left_behind(machine, 0, kLegacyBranch - 1,
                           {"through the NVIDIA 470.xx Legacy drivers", "through the NVIDIA 390.xx Legacy drivers"});
  if (match && nvml_lists_any(machine)) match->severity = Severity::note;
  return match;
}

std::optional<Match> driver_too_old_for_gpu(const Machine& machine) {
  if (machine.driver.wsl.version != 0) return std::nullopt;
  const auto branch = refusing_branch(machine);
  Match match;
  for (const auto* gpu : unlisted_gpus(machine)) {
    const auto* generation = catalog::architecture_of(gpu->device);
    const auto line = refusal(machine, gpu->bdf, "installed in this system is not supported by the");
    const bool too_new = generation != nullptr && branch != 0 && branch < generation->first_branch;
    const bool dropped = generation != nullptr && generation->last_branch != 0 && branch > generation->last_branch;
    if (reserved_for_vm(*gpu) || (!too_new && (line.empty() || dropped))) continue;
    blame(match, machine, *gpu, line);
    if (too_new)
      match.saw("first branch for " + std::string(generation->name), std::to_string(generation->first_branch));
  }
  if (match.evidence.empty()) return std::nullopt;
  saw_driver(match, machine);
  return match;
}

/// GPUs that need the other flavour of the module than the one there is.
std::optional<Match> wrong_flavour(const Machine& machine, std::string_view needed, std::string_view text) {
  if (machine.driver.wsl.version != 0) return std::nullopt;
  const auto branch = refusing_branch(machine);
  const auto flavour = module_flavour(machine);
  Match match;
  for (const auto* gpu : unlisted_gpus(machine)) {
    const auto* generation = catalog::architecture_of(gpu->device);
    const auto line = refusal(machine, gpu->bdf, text);
    if (reserved_for_vm(*gpu) || (generation != nullptr && generation->module != needed && needed == "closed"))
      continue;
    const bool other_branch =
        generation != nullptr && branch != 0 &&
        (branch < generation->first_branch || (generation->last_branch != 0 && branch > generation->last_branch));
    const bool wrong = generation != nullptr && generation->module == needed && !flavour.empty() && flavour != needed;
    if (!other_branch && (wrong || !line.empty())) blame(match, machine, *gpu, line);
  }
  if (match.evidence.empty()) return std::nullopt;
  saw_driver(match, machine);
  return match;
}

std::optional<Match> open_module_on_old_gpu(const Machine& machine) {
  return wrong_flavour(machine, "closed", "installed in this system is not supported by open");
}

std::optional<Match> closed_module_on_blackwell(const Machine& machine) {
  return wrong_flavour(machine, "open", "requires use of the NVIDIA open kernel modules");
}

/// The open module cannot do without the firmware, and takes only that of its own version.
std::optional<Match> gsp_firmware_missing(const Machine& machine) {
  const auto& driver = machine.driver;
  if (!on_the_machine(machine) || !driver.loaded || !driver.version || driver.flavour != "open") return std::nullopt;
  // Other codes than these say that NVML did not get as far as the GPU.
  const auto& nvml = machine.nvml.init;
  if (!nvml.is(0) && !nvml.is(model::nvml_code::kGpuNotFound) && !nvml.is(model::nvml_code::kUnknown))
    return std::nullopt;
  const auto versions = driver.gsp_firmware.value_or(std::vector<std::string>{});
  const auto line = kernel_line(machine, "Direct firmware load for nvidia/" + *driver.version + "/gsp");
  if (std::ranges::find(versions, *driver.version) != versions.end()) return std::nullopt;
  const bool elsewhere = driver.distribution == "nixos" ||
                         (!driver.gsp_firmware && driver.gsp_firmware.error().reason != base::Absent::not_there);
  if (line.empty() && elsewhere) return std::nullopt;
  Match match;
  for (const auto* gpu : unlisted_gpus(machine)) {
    if (gpu->driver.is("nvidia") && driver_serves(machine, *gpu))
      match.about(machine, gpu->bdf).saw("GPU that does not start", machine.gpu_label(gpu->bdf));
  }
  if (match.evidence.empty()) return std::nullopt;
  match.fact("driver_version", *driver.version).fact("branch", std::to_string(driver_branch(machine)));
  match.saw("firmware of versions", versions.empty() ? "none" : base::join(versions, ", "), "/lib/firmware/nvidia");
  if (!line.empty()) match.saw("message", line, "kernel log");
  return match;
}

/// The kernel log's line about this GPU that failed to start, with the codes that say where.
std::string start_failure(const Machine& machine, const std::string& bdf) {
  for (const auto* text : {": RmInitAdapter failed!", ": rm_init_adapter failed"}) {
    if (auto line = kernel_line(machine, "NVRM: GPU " + bdf + text); !line.empty()) return line;
  }
  return {};
}

/// In a batch job without a GPU the device files are closed: then NVML lists none, and none has failed.
bool device_files_may_be_closed(const Machine& machine) {
  return machine.driver.container.inside() || machine.variable("SLURM_JOB_ID").has_value() ||
         machine.driver.node("/dev/nvidiactl") == nullptr || !has_gpu_node(machine);
}

std::optional<Match> rm_init_adapter_failed(const Machine& machine) {
  const bool none_listed =
      machine.nvml.init.is(model::nvml_code::kGpuNotFound) || (machine.nvml.works() && machine.nvml.devices.empty());
  Match match;
  for (const auto* gpu : unlisted_gpus(machine)) {
    const auto line = start_failure(machine, gpu->bdf);
    const bool not_started = gpu->proc_video_bios && base::contains(*gpu->proc_video_bios, "?");
    const bool excluded = gpu->proc_excluded.is("Yes");
    if (!gpu->driver.is("nvidia") || excluded || gpu->config_all_ones) continue;
    if (line.empty() && (!none_listed || !not_started || device_files_may_be_closed(machine))) continue;
    match.about(machine, gpu->bdf);
    match.saw("NVML lists " + machine.gpu_label(gpu->bdf), "no");
    if (not_started)
      match.saw("Video BIOS", *gpu->proc_video_bios, "/proc/driver/nvidia/gpus/" + gpu->bdf + "/information");
    if (!line.empty()) match.saw("message", line, "kernel log");
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

constexpr std::array kRules{
    Rule{"gpu-needs-580-legacy", kPci, gpu_needs_580_legacy},
    Rule{"gpu-needs-470-legacy", kPci, gpu_needs_470_legacy},
    Rule{"driver-too-old-for-gpu", kPci, driver_too_old_for_gpu},
    Rule{"open-module-on-old-gpu", kPci, open_module_on_old_gpu},
    Rule{"closed-module-on-blackwell", kPci, closed_module_on_blackwell},
    Rule{"gsp-firmware-missing", kPci, gsp_firmware_missing},
    Rule{"rm-init-adapter-failed", kPci, rm_init_adapter_failed},
};

}  // namespace

std::span<const Rule> driver_support_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
