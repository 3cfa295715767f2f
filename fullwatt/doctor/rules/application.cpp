// Programs that leave the GPU alone although it works.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/doctor/rules/process_facts.hpp"
#include "fullwatt/doctor/rules/rule.hpp"
#include "fullwatt/doctor/rules/torch_facts.hpp"

namespace fullwatt::doctor {
namespace {

using base::contains;
using base::Version;
using model::Machine;
using model::Process;
using model::Severity;

/// Launchers and helpers import torch and leave the GPU to their children.
bool is_helper(const Process& process) {
  constexpr std::array kPrograms{"torchrun", "accelerate", "deepspeed"};
  constexpr std::array kModules{"torch.distributed.run", "torch.distributed.launch",
                                "multiprocessing.spawn", "multiprocessing.resource_tracker",
                                "multiprocessing-fork",  "torch._inductor.compile_worker"};
  return std::ranges::any_of(process.command, [&](const auto& word) {
    const auto is_program = [&](const char* program) { return base::file_name(word) == program; };
    const auto is_module = [&](const char* module) { return contains(word, module); };
    return std::ranges::any_of(kPrograms, is_program) || std::ranges::any_of(kModules, is_module);
  });
}

/// CUDA works, or the GPU sleeps because nobody uses it.
bool gpu_is_ready(const Machine& machine) {
  if (machine.torch.answers.available.is(false)) return false;
  const auto& init = machine.cuda.answers.init;
  const auto build = torch_build(machine);
  const bool asleep = !init && init.error().reason == base::Absent::asleep;
  return machine.cuda.works() || (asleep && build && !build->cuda.empty());
}

bool child_uses_gpu(const Machine& machine) {
  return std::ranges::any_of(machine.process->child_pids, [&](int pid) {
    const auto holds_node = [&](const auto& other) { return other.pid == pid && !other.gpu_nodes.empty(); };
    return !devices_used_by(machine, pid).empty() || std::ranges::any_of(machine.host.system.processes, holds_node);
  });
}

std::optional<Match> model_on_cpu(const Machine& machine) {
  const auto& process = *machine.process;
  if (!process.imports_torch || is_helper(process) || !gpu_is_ready(machine)) return std::nullopt;
  const bool without_nodes = process.descriptors && process.gpu_nodes.empty();
  if (!without_nodes && !nvml_lists_processes(machine)) return std::nullopt;
  if (!devices_used_by(machine, process.pid).empty() || child_uses_gpu(machine)) return std::nullopt;
  Match match;
  match.fact("pid", std::to_string(process.pid)).fact("python", process.python.empty() ? "python3" : process.python);
  match.saw("command", base::printable(base::join(process.command, " "), 200),
            fmt::format("/proc/{}/cmdline", process.pid));
  if (process.descriptors) {
    match.saw("GPU device nodes it has open", process.gpu_nodes.empty() ? "none" : base::join(process.gpu_nodes, " "),
              fmt::format("/proc/{}/fd", process.pid));
  }
  if (nvml_lists_processes(machine)) match.saw("among the processes of a GPU", "no", "NVML");
  return match;
}

bool has_package(const model::TorchInstall& install, std::string_view name) {
  return std::ranges::find(install.onnxruntime, name) != install.onnxruntime.end();
}

/// The environment's packages, where it can be read and there is a GPU to use.
const model::TorchInstall* packages(const Machine& machine) {
  return nvidia_gpu_present(machine) ? machine.torch.active() : nullptr;
}

std::optional<Match> onnxruntime_cpu_shadow(const Machine& machine) {
  const auto* install = packages(machine);
  if (install == nullptr || !has_package(*install, "onnxruntime") || !has_package(*install, "onnxruntime_gpu"))
    return std::nullopt;
  Match match;
  match.saw("installed side by side", "onnxruntime, onnxruntime-gpu", install->site);
  if (!log_shows(machine, "onnxruntime-cpu-shadow")) match.severity = Severity::warning;
  return match;
}

/// The CUDA major version that onnxruntime-gpu of PyPI is built for; 0 where it is not known for sure.
int onnxruntime_cuda(const Version& version) {
  if (version.major() != 1) return 0;
  if (version.minor() < 18) return 11;
  return version.minor() >= 19 && version.minor() <= 24 ? 12 : 0;
}

bool has_cublas(const Machine& machine, const model::TorchInstall& install, int cuda_major) {
  const std::array names{fmt::format("libcublas.so.{}", cuda_major), fmt::format("libcublasLt.so.{}", cuda_major)};
  const auto is_it = [&](std::string_view path) {
    return std::ranges::find(names, base::file_name(path)) != names.end();
  };
  const auto is_found = [&](const auto& library) { return is_it(library.path); };
  return std::ranges::any_of(install.bundled, is_it) || std::ranges::any_of(machine.cuda.libraries, is_found);
}

std::optional<Match> onnxruntime_missing_libs(const Machine& machine) {
  const auto* install = packages(machine);
  if (install == nullptr || install->onnxruntime_gpu.empty() || has_package(*install, "onnxruntime"))
    return std::nullopt;
  const int cuda_major = onnxruntime_cuda(Version(install->onnxruntime_gpu));
  const bool conda = !install->conda_build.empty() || machine.variable("CONDA_PREFIX");
  if (cuda_major == 0 || conda || has_cublas(machine, *install, cuda_major)) return std::nullopt;
  Match match;
  match.saw("onnxruntime-gpu", install->onnxruntime_gpu, install->site);
  match.saw(fmt::format("libcublasLt.so.{}", cuda_major), "in no folder that is searched");
  if (!log_shows(machine, "onnxruntime-missing-libs")) match.severity = Severity::warning;
  return match;
}

bool maps(const Process& process, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(process.libraries, [&](const auto& path) {
    return std::ranges::any_of(parts, [&](auto part) { return contains(base::file_name(path), part); });
  });
}

/// A llama.cpp in pieces shows its back ends as libraries; one in a single file shows the driver it is linked with.
bool llama_without_gpu(const Process& process) {
  if (maps(process, {"libllama", "libggml"})) {
    return !maps(process, {"ggml-cuda", "ggml-vulkan", "ggml-hip", "ggml-sycl"});
  }
  return process.name.starts_with("llama-") && !maps(process, {"libcuda.so", "libcudart", "libcublas", "libvulkan"});
}

std::optional<Match> llamacpp_cpu_build(const Machine& machine) {
  if (!nvidia_gpu_present(machine)) return std::nullopt;
  if (machine.process && llama_without_gpu(*machine.process)) {
    return Match{}.saw("libraries of its CUDA back end", "none", fmt::format("/proc/{}/maps", machine.process->pid));
  }
  const auto* install = packages(machine);
  if (install == nullptr || install->llama_cpp != "cpu") return std::nullopt;
  Match match;
  match.saw("libggml-cuda.so", "not there", install->site + "/llama_cpp/lib");
  if (!log_shows(machine, "llamacpp-cpu-build")) match.severity = Severity::note;  // PyTorch is not concerned
  return match;
}

constexpr std::array kRules{
    Rule{"model-on-cpu", kProcess, model_on_cpu},
    Rule{"onnxruntime-cpu-shadow", kNothing, onnxruntime_cpu_shadow},
    Rule{"onnxruntime-missing-libs", kNothing, onnxruntime_missing_libs},
    Rule{"llamacpp-cpu-build", kNothing, llamacpp_cpu_build},
};

}  // namespace

std::span<const Rule> application_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
