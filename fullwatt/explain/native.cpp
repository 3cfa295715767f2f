#include "fullwatt/explain/native.hpp"

#include <algorithm>

#include "fullwatt/explain/gpu_time.hpp"

namespace fullwatt::explain {
namespace {

constexpr double kSecondMs = 1000;

/// Each window as one step.
std::vector<TrainingStep> windows_as_steps(const model::TrainingProcess& process) {
  std::vector<TrainingStep> steps;
  for (const auto& window : process.windows) steps.push_back({.start_ns = window.start_ns, .end_ns = window.end_ns});
  return steps;
}

}  // namespace

void describe_native(const model::Run& run, model::Explanation& explanation) {
  const auto recorded = [](const model::TrainingProcess& process) {
    return process.role == model::TrainingProcess::Role::native && !process.activities.empty();
  };
  const auto process = std::ranges::find_if(run.processes, recorded);
  if (process == run.processes.end()) return;
  const auto time = measure_gpu_time(*process, windows_as_steps(*process));
  if (!time.known() || time.window_step_ms <= 0) return;
  const double scale = kSecondMs / time.window_step_ms;
  explanation.has_gpu = true;
  explanation.kernels = kernel_groups(time);
  for (auto& group : explanation.kernels) {
    group.ms *= scale;
    group.count *= scale;
  }
  explanation.resources.push_back({.id = "gpu-busy",
                                   .used = 100 * std::min(1.0, time.busy_ms / time.window_step_ms),
                                   .limit = 100,
                                   .unit = "%",
                                   .source = "kernel times"});
  explanation.remarks.emplace_back("this program has no steps that fullwatt knows: its kernels are those of a second");
}

}  // namespace fullwatt::explain
