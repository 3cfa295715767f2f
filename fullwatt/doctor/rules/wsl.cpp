// WSL: the GPU and its driver belong to Windows, and reach Linux through /dev/dxg and /usr/lib/wsl/lib.

#include <algorithm>
#include <array>

#include "catalog/catalog.hpp"
#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/rules/driver_facts.hpp"

namespace fullwatt::doctor {
namespace {

using model::Machine;
using model::Severity;

constexpr std::string_view kFolder = "/usr/lib/wsl/";
const std::string kLibrary = "/usr/lib/wsl/lib/libcuda.so.1";

bool in_wsl2(const Machine& machine) {
  return machine.driver.wsl.version == 2 && !machine.driver.container.inside();
}

/// A driver's libcuda that did not come from Windows; null without one.
const model::FoundLibrary* linux_library(const Machine& machine) {
  for (const auto& library : machine.cuda.libcuda) {
    const bool windows = library.path.starts_with(kFolder) || library.target.starts_with(kFolder);
    if (!windows && !is_stand_in(library.path) && !is_stand_in(library.target)) return &library;
  }
  return nullptr;
}

/// The one that programs really get decides how bad it is: while they get that of Windows, CUDA works.
std::optional<Match> wsl_linux_driver_inside(const Machine& machine) {
  const auto* library = linux_library(machine);
  if (!in_wsl2(machine) || !machine.driver.wsl.dxg || library == nullptr) return std::nullopt;
  Match match;
  match.fact("path", library->path)
      .saw("libcuda.so.1", library->version.empty() ? "a Linux driver's" : library->version, library->path);
  if (machine.nvml.driver_version) match.saw("driver, as NVML says", *machine.nvml.driver_version);
  for (const auto& [name, version] : machine.host.system.packages) {
    const bool driver = name.starts_with("nvidia-driver-") || name.starts_with("nvidia-utils-") ||
                        name.starts_with("libnvidia-compute-");
    if (driver) match.saw("package", name + " " + version, "/var/lib/dpkg/status");
  }
  if (machine.cuda.works()) match.severity = Severity::warning;
  return match;
}

std::optional<Match> wsl_lib_not_on_path(const Machine& machine) {
  const auto& wsl = machine.driver.wsl;
  if (!in_wsl2(machine) || !wsl.libcuda || wsl.on_loader_path || linux_library(machine) != nullptr) return std::nullopt;
  if (machine.cuda.answers.init) return std::nullopt;
  Match match;
  match.fact("path", kLibrary)
      .saw("libcuda.so.1", "there", kLibrary)
      .saw("/usr/lib/wsl/lib", "not on the search path", "/etc/ld.so.conf.d");
  return match.saw("LD_LIBRARY_PATH", base::printable(machine.variable("LD_LIBRARY_PATH").value_or("not set"), 200));
}

std::optional<Match> wsl_gpu_blocked(const Machine& machine) {
  const auto& wsl = machine.driver.wsl;
  if (wsl.version != 2 || !machine.nvml.init.is(model::nvml_code::kOperatingSystem)) return std::nullopt;
  if (linux_library(machine) != nullptr && in_wsl2(machine)) return std::nullopt;
  Match match;
  match.saw("nvmlInit", fmt::format("17 {}", catalog::nvml_code_name(model::nvml_code::kOperatingSystem)));
  return match.saw("/dev/dxg", wsl.dxg ? "there" : "not there", "/dev/dxg").saw("kernel", machine.driver.kernel);
}

/// Only where somebody counts on CUDA: a WSL without a GPU is as good as any other Linux.
bool counts_on_cuda(const Machine& machine) {
  const auto* install = machine.torch.active();
  return machine.driver.wsl.libcuda || !machine.torch.answers.cuda.empty() ||
         (install != nullptr && !install->cuda.empty());
}

std::optional<Match> wsl_no_dxg(const Machine& machine) {
  const auto& wsl = machine.driver.wsl;
  if (wsl.version == 0 || wsl.dxg || machine.driver.container.inside() || !counts_on_cuda(machine)) return std::nullopt;
  return Match{}
      .saw("kernel", machine.driver.kernel)
      .saw("WSL version", std::to_string(wsl.version))
      .saw("device file", "not there", "/dev/dxg");
}

std::optional<Match> wsl_missing_dev_nvidia(const Machine& machine) {
  if (!in_wsl2(machine) || !machine.driver.wsl.dxg || has_gpu_node(machine)) return std::nullopt;
  return Match{}.saw("device file", "there", "/dev/dxg").saw("/dev/nvidia*", "not there, as it should be", "/dev");
}

constexpr std::array kRules{
    Rule{"wsl-linux-driver-inside", kNothing, wsl_linux_driver_inside},
    Rule{"wsl-lib-not-on-path", kNothing, wsl_lib_not_on_path},
    Rule{"wsl-gpu-blocked", kNothing, wsl_gpu_blocked},
    Rule{"wsl-no-dxg", kNothing, wsl_no_dxg},
    Rule{"wsl-missing-dev-nvidia", kNothing, wsl_missing_dev_nvidia},
};

}  // namespace

std::span<const Rule> wsl_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
