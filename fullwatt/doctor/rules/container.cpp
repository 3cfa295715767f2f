// What stands between a container and the GPU of its host.

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

constexpr std::string_view kControl = "/dev/nvidiactl";
constexpr std::string_view kUvm = "/dev/nvidia-uvm";

bool inside(const Machine& machine) {
  return machine.driver.container.inside();
}

std::string shown(const std::optional<std::string>& value) {
  return !value ? "not set" : value->empty() ? "empty" : base::printable(*value, 80);
}

Match& saw_container(Match& match, const Machine& machine) {
  return match.saw("container", machine.driver.container.kind);
}

/// NVIDIA's runtime takes these to mean that the container wants no GPU.
bool wants_no_gpu(const std::optional<std::string>& visible) {
  return visible && (base::trim(*visible).empty() || *visible == "void" || *visible == "none");
}

/// A host whose GPU is there for containers: NVIDIA's module has it, or at least nobody else.
bool host_has_gpu(const Machine& machine) {
  if (machine.driver.loaded) return true;
  const auto gpus = unreserved_gpus(machine);
  return std::ranges::any_of(gpus, [](const auto* gpu) { return !held_by_nouveau(*gpu); });
}

bool has_no_gpu_nodes(const Machine& machine) {
  return inside(machine) && !has_gpu_node(machine) && machine.driver.node("/dev/dxg") == nullptr;
}

/// Apptainer shows the host's /dev in any case; what its switch brings are the libraries.
bool has_no_libraries(const Machine& machine) {
  return inside(machine) && !machine.nvml.library && !machine.cuda.answers.init && driver_library(machine) == nullptr &&
         machine.nvml.library.error().reason == base::Absent::not_there;
}

/// Under WSL2 nothing tells whether Windows has a GPU; a PyTorch for CUDA is only a sign that somebody thought so.
bool guesses_gpu(const Machine& machine) {
  return machine.driver.wsl.version == 2 && !machine.torch.answers.cuda.empty();
}

std::optional<Match> container_no_gpu_flag(const Machine& machine) {
  const bool no_nodes = has_no_gpu_nodes(machine) && machine.driver.node(kControl) == nullptr;
  if (!no_nodes && !has_no_libraries(machine)) return std::nullopt;
  if (wants_no_gpu(machine.variable("NVIDIA_VISIBLE_DEVICES"))) return std::nullopt;
  if (!host_has_gpu(machine) && !guesses_gpu(machine)) return std::nullopt;
  Match match;
  saw_container(match, machine).saw("device file", no_nodes ? "not there" : "there", std::string(kControl));
  match.saw("libcuda.so.1", driver_library(machine) == nullptr ? "not on the search path" : "there");
  match.saw("module nvidia of the host", machine.driver.loaded ? "loaded" : "not loaded", "/sys/module/nvidia");
  for (const auto* gpu : machine.hardware.nvidia())
    match.saw("GPU of the host", machine.gpu_label(gpu->bdf), "/sys/bus/pci/devices");
  if (!host_has_gpu(machine)) match.severity = Severity::note;
  return match.saw("NVIDIA_VISIBLE_DEVICES", shown(machine.variable("NVIDIA_VISIBLE_DEVICES")));
}

/// Seen on the host it harms nobody until a container asks for the GPU; a log that shows the refusal is the fault.
std::optional<Match> container_toolkit_missing(const Machine& machine) {
  constexpr std::string_view kId = "container-toolkit-missing";
  const auto& container = machine.driver.container;
  const bool refused = training_log_shows(machine, kId);
  if (!on_the_machine(machine) || !container.docker_installed || !nvml_lists_any(machine)) return std::nullopt;
  if (container.toolkit_installed &&
      (!refused || (container.docker_nvidia_runtime.is(true) && !container.docker_from_snap))) {
    return std::nullopt;
  }
  Match match;
  match.saw("Docker", container.docker_from_snap ? "from snap" : "installed");
  match.saw("nvidia-ctk", container.toolkit_installed ? "installed" : "not there", "/usr/bin");
  match.saw("runtime nvidia", container.docker_nvidia_runtime.is(true) ? "set up" : "not set up",
            "/etc/docker/daemon.json");
  if (!refused) match.severity = Severity::note;
  return match;
}

std::optional<Match> container_visible_devices_void(const Machine& machine) {
  const auto visible = machine.variable("NVIDIA_VISIBLE_DEVICES");
  if (!has_no_gpu_nodes(machine) || !wants_no_gpu(visible) || nvml_lists_any(machine)) return std::nullopt;
  if (!host_has_gpu(machine)) return std::nullopt;
  Match match;
  match.fact("value", *visible);
  return saw_container(match, machine)
      .saw("NVIDIA_VISIBLE_DEVICES", shown(visible))
      .saw("device file of a GPU", "none", "/dev");
}

bool has_compute(const std::optional<std::string>& capabilities) {
  return capabilities && (base::contains(*capabilities, "compute") || base::contains(*capabilities, "all"));
}

std::optional<Match> container_caps_no_compute(const Machine& machine) {
  const auto capabilities = machine.variable("NVIDIA_DRIVER_CAPABILITIES");
  if (!inside(machine) || !machine.nvml.library || driver_library(machine) != nullptr || has_compute(capabilities))
    return std::nullopt;
  if (machine.cuda.answers.init || !has_gpu_node(machine)) return std::nullopt;
  Match match;
  saw_container(match, machine).saw("NVIDIA_DRIVER_CAPABILITIES", shown(capabilities));
  return match.saw("libnvidia-ml.so.1", "there", *machine.nvml.library).saw("libcuda.so.1", "not on the search path");
}

/// The container's device rules refuse the control file: open(2) answers EPERM, whoever asks.
const DeviceNode* blocked_control(const Machine& machine) {
  const auto* node = machine.driver.node(kControl);
  return inside(machine) && node != nullptr && node->open_error.is(EPERM) ? node : nullptr;
}

std::optional<Match> container_lost_gpu_after_reload(const Machine& machine) {
  if (blocked_control(machine) == nullptr || machine.driver.container.toolkit_no_cgroups.is(true)) return std::nullopt;
  Match match;
  saw_container(match, machine).saw("opening it", "EPERM: operation not permitted", std::string(kControl));
  if (machine.nvml.init)
    match.saw("nvmlInit", fmt::format("{} {}", *machine.nvml.init, catalog::nvml_code_name(*machine.nvml.init)));
  return match.saw("module nvidia of the host", machine.driver.loaded ? "loaded" : "not visible", "/sys/module/nvidia");
}

/// On the host: harmful to a Docker that runs as root, which is the one that /etc/docker/daemon.json sets up.
std::optional<Match> container_no_cgroups_set(const Machine& machine) {
  const auto& container = machine.driver.container;
  const bool harms_host = !inside(machine) && container.docker_installed && container.docker_nvidia_runtime.is(true) &&
                          !container.rootless.is(true);
  if (!container.toolkit_no_cgroups.is(true) || (blocked_control(machine) == nullptr && !harms_host))
    return std::nullopt;
  Match match;
  match.saw("no-cgroups", "true", "/etc/nvidia-container-runtime/config.toml");
  if (inside(machine)) return match.saw("opening it", "EPERM: operation not permitted", std::string(kControl));
  match.severity = Severity::warning;
  return match.saw("Docker", "runs as root, with the runtime nvidia", "/etc/docker/daemon.json");
}

const DeviceNode* refused_control(const Machine& machine) {
  const auto* node = machine.driver.node(kControl);
  return inside(machine) && node != nullptr && node->open_error.is(EACCES) ? node : nullptr;
}

/// Refused although owner and mode allow it: somebody else forbids it. On the host the audit message says so.
std::optional<Match> container_selinux_denied(const Machine& machine) {
  const auto* node = refused_control(machine);
  Match match;
  if (node != nullptr && !mode_denies(machine, *node) && !machine.driver.container.selinux_enforcing.is(false)) {
    saw_container(match, machine).saw("opening it", "EACCES although its mode allows it", node->path);
    match.saw("owner and mode", fmt::format("uid {}, gid {}, {:04o}", node->uid, node->gid, node->mode), node->path);
    if (machine.driver.container.selinux_enforcing.is(true))
      match.saw("SELinux", "enforcing", "/sys/fs/selinux/enforce");
    return match;
  }
  const auto line = kernel_line(machine, "xserver_misc_device_t");
  const bool denial =
      base::contains(line, "denied") && base::contains(line, "container_t") && !base::contains(line, "permissive=1");
  if (inside(machine) || !denial) return std::nullopt;
  match.severity = Severity::warning;
  return match.saw("message", base::printable(line, 300), "kernel log");
}

/// The specification that counts names neither the loaded driver nor the one on disk.
std::optional<Match> container_cdi_stale(const Machine& machine) {
  const auto& specifications = machine.driver.container.cdi_versions;
  const auto* library = driver_library(machine);
  if (inside(machine) || specifications.empty() || driver_version(machine).empty()) return std::nullopt;
  const auto current = [&](const auto& line) {
    const auto version = base::Version(line.text);
    return version == base::Version(driver_version(machine)) ||
           (library != nullptr && version == base::Version(library->version));
  };
  if (std::ranges::any_of(specifications, current)) return std::nullopt;
  Match match;
  for (const auto& line : specifications) match.saw("driver in the specification", line.text, line.path);
  match.saw("driver of the machine", driver_version(machine));
  if (!training_log_shows(machine, "container-cdi-stale")) match.severity = Severity::warning;
  return match;
}

/// The first "cuda>=12.8" of what the image demands; empty without one.
std::string demanded_cuda(const Machine& machine) {
  constexpr std::string_view kDemand = "cuda>=";
  const auto text = machine.variable("NVIDIA_REQUIRE_CUDA").value_or("");
  const auto at = text.find(kDemand);
  if (at == std::string::npos) return {};
  const auto rest = std::string_view(text).substr(at + kDemand.size());
  return std::string(rest.substr(0, rest.find_first_not_of("0123456789.")));
}

/// A container that runs nevertheless was told to skip the check, and may well work.
std::optional<Match> container_cuda_requirement(const Machine& machine) {
  const auto demanded = demanded_cuda(machine);
  const auto skip = machine.variable("NVIDIA_DISABLE_REQUIRE");
  if (!inside(machine) || demanded.empty() || !skip || *skip == "0" || *skip == "false" || !machine.nvml.cuda_version)
    return std::nullopt;
  const auto offered = base::cuda_version_text(*machine.nvml.cuda_version);
  if (base::Version(offered) >= base::Version(demanded)) return std::nullopt;
  Match match;
  match.severity = Severity::note;
  match.fact("cuda", demanded)
      .saw("NVIDIA_REQUIRE_CUDA", "cuda>=" + demanded)
      .saw("newest CUDA of the driver", offered);
  return match.saw("NVIDIA_DISABLE_REQUIRE", shown(skip));
}

/// Either the node kept its old number, or it is new and the container's rules still name the old one.
std::optional<Match> lxc_uvm_major_changed(const Machine& machine) {
  const auto* node = machine.driver.node(kUvm);
  const auto& major = machine.driver.uvm_major;
  if (node == nullptr || !major || machine.cuda.works() || !nvml_lists_any(machine)) return std::nullopt;
  const bool blocked = node->major == *major && node->open_error.is(EPERM) && machine.driver.container.kind == "lxc";
  if (node->major == *major && !blocked) return std::nullopt;
  Match match;
  match.fact("value", blocked ? "(hidden)" : std::to_string(node->major)).fact("expected", std::to_string(*major));
  match.saw("major number of the device file", std::to_string(node->major), node->path);
  match.saw("major number of the module", std::to_string(*major), "/proc/devices");
  if (blocked) match.saw("opening it", "EPERM: operation not permitted", node->path);
  return match;
}

std::optional<Match> container_nonroot_gid(const Machine& machine) {
  const auto* node = refused_control(machine);
  const auto& system = machine.host.system;
  if (node == nullptr || !mode_denies(machine, *node)) return std::nullopt;
  Match match;
  saw_container(match, machine);
  match.saw("owner and mode", fmt::format("uid {}, gid {}, {:04o}", node->uid, node->gid, node->mode), node->path);
  return match.saw("you", fmt::format("uid {}, groups {}", system.uid, fmt::join(system.groups, " ")));
}

constexpr std::array kRules{
    Rule{"container-no-gpu-flag", kNothing, container_no_gpu_flag},
    Rule{"container-toolkit-missing", kNvml, container_toolkit_missing},
    Rule{"container-visible-devices-void", kNothing, container_visible_devices_void},
    Rule{"container-caps-no-compute", kNothing, container_caps_no_compute},
    Rule{"container-lost-gpu-after-reload", kNothing, container_lost_gpu_after_reload},
    Rule{"container-no-cgroups-set", kNothing, container_no_cgroups_set},
    Rule{"container-selinux-denied", kNothing, container_selinux_denied},
    Rule{"container-cdi-stale", kNothing, container_cdi_stale},
    Rule{"container-cuda-requirement", kNvml, container_cuda_requirement},
    Rule{"lxc-uvm-major-changed", kNvml, lxc_uvm_major_changed},
    Rule{"container-nonroot-gid", kNothing, container_nonroot_gid},
};

}  // namespace

std::span<const Rule> container_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
