#include "fullwatt/doctor/rules/driver_facts.hpp"

#include <algorithm>
#include <array>

#include "catalog/catalog.hpp"

#include "fullwatt/base/pattern.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"

namespace fullwatt::doctor {
namespace {

using model::Machine;
using model::PciGpu;

/// Packages that bring the kernel module; a toolkit or a container tool does not make a driver.
bool is_driver_package(std::string_view name) {
  constexpr std::array kPrefixes{"nvidia-driver", "nvidia-dkms",          "nvidia-kernel", "nvidia-headless",
                                 "nvidia-open",   "linux-modules-nvidia", "cuda-drivers"};
  return std::ranges::any_of(kPrefixes, [&](const char* prefix) { return name.starts_with(prefix); });
}

bool has_driver_package(const Machine& machine) {
  return std::ranges::any_of(machine.host.system.packages,
                             [](const auto& package) { return is_driver_package(package.first); });
}

std::string flavour_of_packages(const Machine& machine) {
  for (const auto& [name, version] : machine.host.system.packages) {
    if (is_driver_package(name) && base::contains(name, "open")) return "open";
  }
  return has_driver_package(machine) ? "closed" : "";
}

/// The part of a package's version that is the driver's: 580.95.05 of 580.95.05-0ubuntu1.
std::string package_version(const Machine& machine) {
  for (const auto& [name, version] : machine.host.system.packages) {
    if (is_driver_package(name) && !name.starts_with("linux-modules")) return version.substr(0, version.find('-'));
  }
  return {};
}

}  // namespace

bool on_the_machine(const Machine& machine) {
  return !machine.driver.container.inside() && machine.driver.wsl.version == 0;
}

bool is_stand_in(std::string_view path) {
  return base::contains(path, "/compat/") || base::contains(path, "cuda-compat/") || base::contains(path, "/stubs/");
}

const model::FoundLibrary* driver_library(const Machine& machine) {
  for (const auto& library : machine.cuda.libcuda) {
    if (!is_stand_in(library.path) && !is_stand_in(library.target)) return &library;
  }
  return nullptr;
}

bool driver_installed(const Machine& machine) {
  const auto& driver = machine.driver;
  return driver.loaded || !driver.module_files.empty() || !driver.module_other_kernels.empty() ||
         driver_library(machine) != nullptr || machine.nvml.library.has_value() || has_driver_package(machine) ||
         !kernel_line(machine, "NVRM: ").empty();
}

std::string driver_version(const Machine& machine) {
  if (machine.driver.version) return *machine.driver.version;
  if (machine.nvml.driver_version) return *machine.nvml.driver_version;
  const auto* library = driver_library(machine);
  if (library != nullptr && !library->version.empty()) return library->version;
  return package_version(machine);
}

int driver_branch(const Machine& machine) {
  return base::Version(driver_version(machine)).major();
}

std::string module_flavour(const Machine& machine) {
  if (!machine.driver.flavour.empty()) return machine.driver.flavour;
  for (const auto& path : machine.driver.module_files) {
    if (base::contains(path, "open")) return "open";
  }
  return flavour_of_packages(machine);
}

bool driver_serves(const Machine& machine, const PciGpu& gpu) {
  const auto* generation = catalog::architecture_of(gpu.device);
  const auto branch = driver_branch(machine);
  const auto flavour = module_flavour(machine);
  if (generation == nullptr) return true;
  if (branch != 0 && branch < generation->first_branch) return false;
  if (branch != 0 && generation->last_branch != 0 && branch > generation->last_branch) return false;
  return flavour.empty() || generation->module == "both" || generation->module == flavour;
}

bool nvml_was_asked(const Machine& machine) {
  if (machine.nvml.init) return true;
  const auto reason = machine.nvml.init.error().reason;
  return reason != base::Absent::asleep && reason != base::Absent::not_asked;
}

bool nvml_lists(const Machine& machine, std::string_view bdf) {
  const auto* device = machine.nvml_by_bdf(bdf);
  return machine.nvml.works() && device != nullptr && device->handle_code == 0;
}

bool nvml_lists_any(const Machine& machine) {
  const auto listed = [](const auto& device) { return device.handle_code == 0; };
  return machine.nvml.works() && std::ranges::any_of(machine.nvml.devices, listed);
}

std::vector<const PciGpu*> unlisted_gpus(const Machine& machine) {
  if (machine.driver.container.inside() && (!machine.nvml.init || nvml_lists_any(machine))) return {};
  const bool asked = nvml_was_asked(machine);
  auto gpus = machine.hardware.nvidia();
  std::erase_if(gpus,
                [&](const auto* gpu) { return asked ? nvml_lists(machine, gpu->bdf) : gpu->driver.is("nvidia"); });
  return gpus;
}

bool reserved_for_vm(const PciGpu& gpu) {
  return gpu.driver.is("vfio-pci") || gpu.driver.is("pci-stub") || gpu.driver.is("pciback");
}

bool held_by_nouveau(const PciGpu& gpu) {
  return gpu.driver.is("nouveau") || gpu.driver.is("nvidiafb") || gpu.driver.is("rivafb");
}

std::vector<const PciGpu*> unreserved_gpus(const Machine& machine) {
  auto gpus = machine.hardware.nvidia();
  std::erase_if(gpus, [](const auto* gpu) { return reserved_for_vm(*gpu); });
  return gpus;
}

bool is_gpu_node(const model::DeviceNode& node) {
  constexpr std::string_view kPrefix = "/dev/nvidia";
  return node.path.starts_with(kPrefix) && base::number<int>(std::string_view(node.path).substr(kPrefix.size()));
}

bool mode_denies(const Machine& machine, const model::DeviceNode& node) {
  const auto& system = machine.host.system;
  if (system.uid == 0) return false;
  const bool in_group = std::ranges::find(system.groups, static_cast<std::uint32_t>(node.gid)) != system.groups.end();
  const int shift = std::cmp_equal(node.uid, system.uid) ? 6 : in_group ? 3 : 0;
  return ((node.mode >> shift) & 6) != 6;
}

bool has_gpu_node(const Machine& machine) {
  return std::ranges::any_of(machine.driver.nodes, is_gpu_node);
}

bool cuda_failed_with(const Machine& machine, std::initializer_list<int> codes) {
  const auto& init = machine.cuda.answers.init;
  return init && std::ranges::find(codes, *init) != codes.end();
}

std::string kernel_line(const Machine& machine, std::string_view text) {
  if (!machine.driver.kernel_log) return {};
  for (const auto& line : *machine.driver.kernel_log) {
    if (base::contains(line, text)) return line;
  }
  return {};
}

bool training_log_shows(const Machine& machine, std::string_view id) {
  const auto* entry = catalog::find(id);
  if (!machine.log || entry == nullptr) return false;
  return std::ranges::any_of(*machine.log, [&](const auto& line) {
    return std::ranges::any_of(entry->training_log,
                               [&](auto pattern) { return base::match(pattern, line).has_value(); });
  });
}

std::string bound_driver(const PciGpu& gpu) {
  return gpu.driver ? *gpu.driver : "none";
}

}  // namespace fullwatt::doctor
