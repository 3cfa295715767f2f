// Switches that make PyTorch compute more slowly than it could.

#include <algorithm>
#include <array>

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/doctor/rules/rule.hpp"
#include "fullwatt/doctor/rules/torch_facts.hpp"

namespace fullwatt::doctor {
namespace {

using base::Version;
using model::Machine;

bool has_tf32(const TorchGpu& gpu) {
  return Version(gpu.compute_capability) >= Version("8.0");
}

/// The GPU with TF32 that PyTorch computes on.
std::optional<TorchGpu> tf32_gpu(const Machine& machine) {
  for (auto& gpu : torch_gpus(machine)) {
    if (gpu.computes && has_tf32(gpu)) return gpu;
  }
  return std::nullopt;
}

bool tf32_forbidden(const Machine& machine) {
  return machine.variable("NVIDIA_TF32_OVERRIDE") == "0";
}

std::optional<Match> tf32_off(const Machine& machine) {
  const auto gpu = tf32_gpu(machine);
  if (!gpu || machine.torch.answers.matmul_precision != "highest" || tf32_forbidden(machine)) return std::nullopt;
  return Match{}
      .fact("gpu", gpu->name)
      .saw("torch.get_float32_matmul_precision()", machine.torch.answers.matmul_precision)
      .saw("compute capability", gpu->compute_capability, gpu->name);
}

std::optional<Match> tf32_override_env(const Machine& machine) {
  const auto gpus = torch_gpus(machine);
  const auto without = [](const TorchGpu& gpu) { return !gpu.compute_capability.empty() && !has_tf32(gpu); };
  if (!tf32_forbidden(machine) || std::ranges::all_of(gpus, without)) return std::nullopt;
  return Match{}.saw("NVIDIA_TF32_OVERRIDE", "0", environment_source(machine));
}

std::optional<Match> allocator_caching_off(const Machine& machine) {
  const auto value = machine.variable("PYTORCH_NO_CUDA_MEMORY_CACHING");
  if (!value || !nvidia_gpu_present(machine)) return std::nullopt;
  return Match{}.saw("PYTORCH_NO_CUDA_MEMORY_CACHING", *value, environment_source(machine));
}

/// The two workspaces with which cuBLAS computes the same every time.
bool asks_for_same_results(const std::optional<std::string>& workspace) {
  return workspace == ":4096:8" || workspace == ":16:8";
}

std::optional<Match> deterministic_left_on(const Machine& machine) {
  Match match;
  const auto workspace = machine.variable("CUBLAS_WORKSPACE_CONFIG");
  if (machine.process && asks_for_same_results(workspace)) {
    match.saw("CUBLAS_WORKSPACE_CONFIG", *workspace, environment_source(machine));
  }
  if (machine.torch.answers.deterministic.is(true)) match.saw("torch.are_deterministic_algorithms_enabled()", "True");
  const auto line = log_line(machine, "deterministic-left-on");
  if (match.evidence.empty() && !line) return std::nullopt;
  // With warn_only the same words are a warning.
  if (line && base::contains(*line, "RuntimeError:")) match.severity = model::Severity::error;
  return match;
}

constexpr std::array kRules{
    Rule{"tf32-off", kTorch, tf32_off},
    Rule{"tf32-override-env", kNothing, tf32_override_env},
    Rule{"allocator-caching-off", kNothing, allocator_caching_off},
    Rule{"deterministic-left-on", kNothing, deterministic_left_on},
};

}  // namespace

std::span<const Rule> pytorch_setting_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
