// Why NVIDIA's kernel module is not loaded, or not the one its libraries need.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/doctor/rules/driver_facts.hpp"

namespace fullwatt::doctor {
namespace {

using model::Machine;
using model::PciGpu;
using model::Severity;

std::string device_folder(const PciGpu& gpu) {
  return "/sys/bus/pci/devices/" + gpu.bdf;
}

std::string module_list(const Machine& machine) {
  return "/lib/modules/" + machine.driver.kernel + "/modules.dep";
}

/// The GPUs that wait for NVIDIA's module while it is not loaded.
std::vector<const PciGpu*> waiting_gpus(const Machine& machine) {
  if (machine.driver.loaded || !on_the_machine(machine)) return {};
  return unreserved_gpus(machine);
}

Match& saw_gpus(Match& match, const Machine& machine, const std::vector<const PciGpu*>& gpus) {
  for (const auto* gpu : gpus) {
    match.about(machine, gpu->bdf)
        .saw("driver of " + machine.gpu_label(gpu->bdf), bound_driver(*gpu), device_folder(*gpu) + "/driver");
  }
  return match;
}

std::optional<Match> driver_not_installed(const Machine& machine) {
  const auto gpus = waiting_gpus(machine);
  if (gpus.empty() || driver_installed(machine)) return std::nullopt;
  Match match;
  saw_gpus(match, machine, gpus);
  match.saw("nvidia.ko for kernel " + machine.driver.kernel, "not there", module_list(machine));
  match.saw("libcuda.so.1", "not on the search path");
  return match;
}

/// Without a driver of NVIDIA's to take its place nouveau does no harm: then that is what is missing.
std::optional<Match> nouveau_bound(const Machine& machine) {
  if (machine.driver.wsl.version != 0) return std::nullopt;
  if (!driver_installed(machine) && !machine.driver.container.inside()) return std::nullopt;
  auto gpus = machine.hardware.nvidia();
  std::erase_if(gpus, [](const auto* gpu) { return !held_by_nouveau(*gpu); });
  if (gpus.empty()) return std::nullopt;
  Match match;
  saw_gpus(match, machine, gpus);
  if (const auto line = kernel_line(machine, "probe routine was not called"); !line.empty())
    match.saw("message", line, "kernel log");
  const bool could_serve = std::ranges::any_of(gpus, [&](const auto* gpu) { return driver_serves(machine, *gpu); });
  if (nvml_lists_any(machine)) match.severity = could_serve ? Severity::warning : Severity::note;
  return match;
}

/// A card set aside beside others that work is somebody's intention; the only one is why there is no GPU.
std::optional<Match> vfio_bound(const Machine& machine) {
  auto gpus = machine.hardware.nvidia();
  std::erase_if(gpus, [](const auto* gpu) { return !reserved_for_vm(*gpu); });
  if (gpus.empty()) return std::nullopt;
  Match match;
  saw_gpus(match, machine, gpus);
  for (const auto& line : machine.driver.vfio_ids)
    match.saw("option", line.text, fmt::format("{}:{}", line.path, line.line));
  if (!unreserved_gpus(machine).empty()) match.severity = Severity::note;
  return match;
}

std::optional<Match> module_not_built_for_kernel(const Machine& machine) {
  if (waiting_gpus(machine).empty() || !driver_installed(machine) || !machine.driver.module_files.empty())
    return std::nullopt;
  Match match;
  match.fact("kernel", machine.driver.kernel)
      .saw("nvidia.ko for kernel " + machine.driver.kernel, "not there", module_list(machine));
  if (!machine.driver.module_other_kernels.empty()) {
    match.saw("kernels that have it", base::join(machine.driver.module_other_kernels, ", "), "/lib/modules");
  }
  match.saw("headers of this kernel", machine.driver.kernel_headers ? "there" : "not there",
            "/lib/modules/" + machine.driver.kernel + "/build");
  if (const auto* library = driver_library(machine)) match.saw("driver's libraries", library->version, library->path);
  return match;
}

std::optional<Match> module_blacklisted(const Machine& machine) {
  const auto& lines = machine.driver.blacklists;
  if (waiting_gpus(machine).empty() || lines.empty() || !driver_installed(machine)) return std::nullopt;
  Match match;
  match.fact("path", lines.front().path);
  for (const auto& line : lines) match.saw("setting", line.text, fmt::format("{}:{}", line.path, line.line));
  return match.saw("module nvidia", "not loaded", "/sys/module/nvidia");
}

/// The line in which the kernel refused a module for its signature; it names no module.
std::string rejection(const Machine& machine) {
  constexpr std::array kTexts{"module with unavailable key is rejected", "unsigned module is rejected",
                              "unsigned module loading is restricted", "Key was rejected by service"};
  for (const auto* text : kTexts) {
    if (auto line = kernel_line(machine, text); !line.empty()) return line;
  }
  return {};
}

/// Built on this machine, so signed with a key of its own if at all; distributions sign what they ship.
bool built_here(const Machine& machine) {
  constexpr std::array kFolders{"/updates/", "/extra/", "/weak-updates/", "/kernel/drivers/video/"};
  return std::ranges::any_of(machine.driver.module_files, [&](const auto& path) {
    return std::ranges::any_of(kFolders, [&](const char* folder) { return base::contains(path, folder); });
  });
}

std::optional<Match> secure_boot_unsigned(const Machine& machine) {
  const auto& driver = machine.driver;
  auto gpus = waiting_gpus(machine);
  std::erase_if(gpus, [&](const auto* gpu) { return !driver_serves(machine, *gpu); });
  if (gpus.empty() || driver.module_files.empty() || !driver.blacklists.empty()) return std::nullopt;
  if (!driver.secure_boot.is(true) || driver.signatures_enforced.is(false)) return std::nullopt;
  const auto line = rejection(machine);
  const bool ran = !kernel_line(machine, "NVRM: ").empty();  // a module that speaks was let in
  const bool held = std::ranges::any_of(gpus, [](const auto* gpu) { return held_by_nouveau(*gpu); });
  if (ran || (line.empty() && (held || driver.module_signed.is(true) || !built_here(machine)))) return std::nullopt;
  Match match;
  match.saw("Secure Boot", "on", "/sys/firmware/efi/efivars")
      .saw("module nvidia", "built, not loaded", driver.module_files.front());
  if (!line.empty()) match.saw("message", line, "kernel log");
  return match;
}

/// Version of the libraries that were refused: NVML's own file, else libcuda's.
std::string library_version(const Machine& machine) {
  if (machine.nvml.library) {
    if (auto version = base::library_version(base::file_name(*machine.nvml.library)); !version.empty()) return version;
  }
  const auto* library = driver_library(machine);
  return library != nullptr ? library->version : std::string{};
}

std::optional<Match> driver_library_mismatch(const Machine& machine) {
  const auto& driver = machine.driver;
  if (driver.wsl.version != 0) return std::nullopt;
  const auto library = library_version(machine);
  const bool differ = driver.version && !library.empty() && base::Version(*driver.version) != base::Version(library);
  const bool refused = machine.nvml.init.is(model::nvml_code::kVersionMismatch);
  const bool cuda_refused = differ && cuda_failed_with(machine, {model::cuda_code::kDriverMismatch});
  if (!refused && !cuda_refused && (!differ || nvml_was_asked(machine))) return std::nullopt;
  Match match;
  match.fact("driver_version", driver.version.value_or("?")).fact("library_version", library.empty() ? "?" : library);
  match.saw("loaded module", driver.version.value_or("unknown"), "/sys/module/nvidia/version");
  match.saw("libraries", library.empty() ? "another version" : library, machine.nvml.library.value_or(""));
  if (const auto line = kernel_line(machine, "NVRM: API mismatch"); !line.empty())
    match.saw("message", line, "kernel log");
  return match;
}

constexpr std::array kRules{
    Rule{"driver-not-installed", kPci, driver_not_installed},
    Rule{"nouveau-bound", kPci, nouveau_bound},
    Rule{"vfio-bound", kPci, vfio_bound},
    Rule{"module-not-built-for-kernel", kPci, module_not_built_for_kernel},
    Rule{"module-blacklisted", kPci, module_blacklisted},
    Rule{"secure-boot-unsigned", kPci, secure_boot_unsigned},
    Rule{"driver-library-mismatch", kNothing, driver_library_mismatch},
};

}  // namespace

std::span<const Rule> driver_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
