// Which PyTorch trains, for whom it was built, and whether it has code for the GPUs.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/doctor/archs.hpp"
#include "fullwatt/doctor/rules/rule.hpp"
#include "fullwatt/doctor/rules/torch_facts.hpp"

namespace fullwatt::doctor {
namespace {

using base::contains;
using base::Version;
using model::Machine;
using model::Severity;
using model::TorchInstall;

/// The build when it is one for processors on a machine with an NVIDIA GPU.
std::optional<TorchBuild> cpu_build(const Machine& machine) {
  auto build = torch_build(machine);
  return build && build->cpu_only() && nvidia_gpu_present(machine) ? build : std::nullopt;
}

Match describe(const Machine& machine, const TorchBuild& build) {
  Match match;
  match.fact("torch", build.version).fact("path", build.path);
  match.saw("torch.__version__", build.version, build.path);
  add_install_facts(machine, match);
  return match;
}

/// The facts that a message of the log alone does not hold.
std::optional<Match> only_in_log(const Machine& machine, std::string_view id) {
  if (!log_shows(machine, id)) return std::nullopt;
  Match match;
  add_install_facts(machine, match);
  return match;
}

/// PREFIX of PREFIX/bin/python.
std::string prefix_of(const std::string& interpreter) {
  return std::string(base::folder_of(base::folder_of(interpreter)));
}

const TorchInstall* install_of(const Machine& machine, const std::string& interpreter) {
  const auto at = std::ranges::find(machine.torch.installs, interpreter, &TorchInstall::interpreter);
  return at == machine.torch.installs.end() || interpreter.empty() ? nullptr : &*at;
}

/// Whether a path lies in the environment of the interpreter, as it was named or as it calls itself.
bool in_environment(const Machine& machine, const std::string& path) {
  for (const auto& python : {machine.torch.interpreter, machine.torch.answers.executable.value_or("")}) {
    if (!python.empty() && path.starts_with(prefix_of(python) + "/")) return true;
  }
  return false;
}

/// A torch with CUDA in the interpreter's own environment that another torch, from PYTHONPATH or ~/.local, hides.
const TorchInstall* hidden_cuda_build(const Machine& machine, const TorchBuild& imported) {
  if (imported.path.empty() || in_environment(machine, imported.path)) return nullptr;
  const auto is_own = [&](const auto& install) {
    return in_environment(machine, install.site) && !install.cuda.empty();
  };
  const auto at = std::ranges::find_if(machine.torch.installs, is_own);
  return at == machine.torch.installs.end() ? nullptr : &*at;
}

/// The torch with CUDA that the shell would use, where the process asked about runs in another environment.
const TorchInstall* shell_cuda_build(const Machine& machine) {
  const auto& shell = machine.torch.shell_interpreter;
  if (shell.empty() || shell == machine.torch.interpreter) return nullptr;
  const auto* install = install_of(machine, shell);
  return install != nullptr && !install->cuda.empty() ? install : nullptr;
}

const TorchInstall* better_build(const Machine& machine, const TorchBuild& build) {
  if (const auto* hidden = hidden_cuda_build(machine, build)) return hidden;
  return shell_cuda_build(machine);
}

bool conda_chose_cpu(const Machine& machine) {
  const auto* install = machine.torch.active();
  return install != nullptr && contains(install->conda_build, "cpu");
}

/// Whether the project's lock file names a source of torch that has no CUDA for this processor.
bool lock_brings_cpu(const Machine& machine) {
  const auto& source = machine.host.lock_torch_source;
  if (!source || machine.host.lock_files.empty()) return false;
  const bool pypi_without_cuda = contains(*source, "pypi.org") && machine.host.system.machine != "x86_64";
  return contains(*source, "/whl/cpu") || pypi_without_cuda;
}

std::optional<Match> torch_cpu_wheel(const Machine& machine) {
  const auto build = cpu_build(machine);
  if (!build || conda_chose_cpu(machine) || lock_brings_cpu(machine) || better_build(machine, *build) != nullptr) {
    return only_in_log(machine, "torch-cpu-wheel");
  }
  auto match = describe(machine, *build);
  match.saw("torch.version.cuda", "None", build->path);
  for (const auto& install : machine.torch.installs) {
    if (!install.cuda.empty()) match.saw("another PyTorch, with CUDA", install.version, install.site);
  }
  return match;
}

std::optional<Match> torch_cpu_from_conda(const Machine& machine) {
  const auto build = cpu_build(machine);
  if (!build || !conda_chose_cpu(machine)) return std::nullopt;
  return describe(machine, *build).saw("build of conda's package", machine.torch.active()->conda_build, "conda-meta");
}

std::optional<Match> torch_cpu_from_lockfile(const Machine& machine) {
  const auto build = cpu_build(machine);
  if (!build || conda_chose_cpu(machine) || !lock_brings_cpu(machine)) return std::nullopt;
  Match match;
  match.fact("path", machine.host.lock_files.front());
  match.saw("source of torch", base::printable(*machine.host.lock_torch_source, 200), machine.host.lock_files.front());
  match.saw("torch.__version__", build->version, build->path).saw("processor", machine.host.system.machine, "uname -m");
  add_install_facts(machine, match);
  return match;
}

Match other_environment(const Machine& machine, const std::string& interpreter, const std::string& torch) {
  Match match;
  match.fact("python", interpreter).fact("path", torch);
  if (const auto path = machine.variable("PYTHONPATH")) match.saw("PYTHONPATH", base::printable(*path, 200));
  return match;
}

/// A notebook's kernel that starts another environment than the shell, with a PyTorch that cannot use the GPU.
std::optional<Match> kernel_without_cuda(const Machine& machine) {
  const auto build = torch_build(machine);
  if (!build || build->cuda.empty() || !nvidia_gpu_present(machine)) return std::nullopt;
  std::optional<Match> match;
  std::size_t count = 0;
  for (const auto& kernel : machine.torch.kernels) {
    const auto* install = install_of(machine, kernel.interpreter);
    if (install == nullptr || !install->cuda.empty() || install->cuda_library) continue;
    if (!match) match = other_environment(machine, kernel.interpreter, install->site + "/torch");
    match->saw("kernel starts " + kernel.interpreter, "PyTorch " + install->version, kernel.path);
    ++count;
  }
  if (!match) return std::nullopt;
  match->saw("the shell starts " + machine.torch.interpreter, "PyTorch " + build->version, build->path);
  // One kernel among good ones may be meant so.
  match->severity = count == machine.torch.kernels.size() ? Severity::warning : Severity::note;
  return match;
}

std::optional<Match> torch_other_environment(const Machine& machine) {
  const auto build = cpu_build(machine);
  const auto* better = build ? better_build(machine, *build) : nullptr;
  if (better == nullptr) return kernel_without_cuda(machine);
  auto match = other_environment(machine, machine.torch.interpreter, build->path);
  match.saw("imported PyTorch", build->version, build->path)
      .saw("interpreter", machine.torch.interpreter, machine.torch.interpreter_origin);
  return match.saw("PyTorch with CUDA that is not used", better->version, better->site);
}

/// Whether a GPU of the vendor that the build is for is there as well.
bool meant_for_other_gpu(const Machine& machine, const TorchBuild& build) {
  const int vendor = build.hip.empty() ? model::kIntel : model::kAmd;
  return std::ranges::any_of(machine.hardware.gpus,
                             [&](const auto& gpu) { return gpu.vendor == vendor && gpu.discrete; });
}

std::optional<Match> torch_other_vendor_build(const Machine& machine) {
  const auto build = torch_build(machine);
  const bool other = build && build->cuda.empty() && !build->cpu_only() && nvidia_gpu_present(machine);
  if (!other || meant_for_other_gpu(machine, *build)) return only_in_log(machine, "torch-other-vendor-build");
  auto match = describe(machine, *build);
  if (!build->hip.empty()) match.saw("torch.version.hip", build->hip, build->path);
  if (!build->xpu.empty()) match.saw("torch.version.xpu", build->xpu, build->path);
  return match;
}

/// A GPU that no wheel of its time leaves out any more is called older, any other newer.
bool is_older(const std::string& capability, const std::vector<std::string>& archs) {
  const Version gpu(capability);
  return gpu < Version(lowest_arch(archs)) || gpu < Version("7.5");
}

bool lacks_code(const TorchGpu& gpu, const std::vector<std::string>& archs) {
  return !gpu.computes && !gpu.compute_capability.empty() && !covers(archs, gpu.compute_capability);
}

/// The GPU that a warning in the log names; empty when none does.
std::string gpu_in_log(const Machine& machine) {
  const auto found = captured_in_log(machine, "Found GPU* {gpu} which is of", "gpu");
  if (found) return *found;
  const auto name = captured_in_log(machine, "{gpu} with CUDA capability sm_", "gpu").value_or("");
  const auto vendor = name.find("NVIDIA ");
  return vendor == std::string::npos ? name : name.substr(vendor);
}

/// The warning stands on several lines.
std::optional<Match> warned_in_log(const Machine& machine, std::string_view id) {
  if (!log_shows(machine, id)) return std::nullopt;
  const auto archs =
      captured_in_log(machine, "The current PyTorch install supports CUDA capabilities {archs}.", "archs");
  Match match;
  match.fact("archs", archs.value_or("see the log"));
  if (const auto gpu = gpu_in_log(machine); !gpu.empty()) match.fact("gpu", gpu);
  return match;
}

/// GPUs without code in this build, older or newer than it.
std::optional<Match> without_code(const Machine& machine, bool older) {
  const auto build = torch_build(machine);
  const auto& archs = machine.torch.answers.archs;
  if (!build || build->cuda.empty() || archs.empty()) return std::nullopt;
  std::optional<Match> match;
  bool another_works = false;
  for (const auto& gpu : torch_gpus(machine)) {
    another_works = another_works || gpu.computes;
    if (!lacks_code(gpu, archs) || is_older(gpu.compute_capability, archs) != older) continue;
    if (!match) match = describe(machine, *build).fact("gpu", gpu.name).fact("archs", base::join(archs, " "));
    match->saw("compute capability", gpu.compute_capability, gpu.name);
  }
  if (!match) return std::nullopt;
  match->saw("architectures in the build", base::join(archs, " "), "torch.cuda.get_arch_list()");
  if (another_works) match->severity = Severity::warning;
  return match;
}

std::optional<Match> torch_lacks_new_gpu_arch(const Machine& machine) {
  auto match = without_code(machine, false);
  return match ? match : warned_in_log(machine, "torch-lacks-new-gpu-arch");
}

std::optional<Match> torch_dropped_old_gpu_arch(const Machine& machine) {
  auto match = without_code(machine, true);
  return match ? match : warned_in_log(machine, "torch-dropped-old-gpu-arch");
}

bool is_arch_warning(const std::string& text) {
  return contains(text, "which is of compute capability") || contains(text, "which is of cuda capability") ||
         contains(text, "is not compatible with the current PyTorch installation");
}

std::optional<Match> torch_arch_warning_cosmetic(const Machine& machine) {
  for (const auto& device : machine.torch.answers.devices) {
    const auto names_it = [&](const auto& text) { return is_arch_warning(text) && contains(text, device.name); };
    const auto warning = std::ranges::find_if(machine.torch.answers.warnings, names_it);
    if (!device.operation.is("ok") || warning == machine.torch.answers.warnings.end()) continue;
    return Match{}
        .fact("arch", device.compute_capability)
        .saw("torch says", base::printable(base::trim(*warning), 300))
        .saw("a matrix product on " + device.name, "ok");
  }
  return std::nullopt;
}

constexpr std::array kRules{
    Rule{"torch-cpu-wheel", kNothing, torch_cpu_wheel},
    Rule{"torch-cpu-from-conda", kNothing, torch_cpu_from_conda},
    Rule{"torch-cpu-from-lockfile", kNothing, torch_cpu_from_lockfile},
    Rule{"torch-other-environment", kNothing, torch_other_environment},
    Rule{"torch-other-vendor-build", kNothing, torch_other_vendor_build},
    Rule{"torch-lacks-new-gpu-arch", kNothing, torch_lacks_new_gpu_arch},
    Rule{"torch-dropped-old-gpu-arch", kNothing, torch_dropped_old_gpu_arch},
    Rule{"torch-arch-warning-cosmetic", kTorch, torch_arch_warning_cosmetic},
};

}  // namespace

std::span<const Rule> pytorch_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
