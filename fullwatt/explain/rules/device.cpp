// On which device the training really runs (S1, S3, S4, P2, P3).

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/select.hpp"
#include "fullwatt/explain/machine_facts.hpp"
#include "fullwatt/explain/rules/rule.hpp"

namespace fullwatt::explain {
namespace {

std::string listed(const Counts& devices) {
  std::vector<std::string> parts;
  for (const auto& [name, count] : devices) parts.push_back(fmt::format("{} ({:.0f})", name, count));
  return base::join(parts, ", ");
}

bool has_prefix(const Counts& devices, std::string_view prefix) {
  return std::ranges::any_of(devices,
                             [&](const auto& item) { return item.second > 0 && item.first.starts_with(prefix); });
}

/// A GPU that PyTorch can compute on: it saw one, or it is built for CUDA and the machine's examination ran a kernel.
std::string working_gpu(const Case& examined) {
  if (!examined.facts().gpus.empty()) return examined.facts().gpus.front().name;
  const auto& machine = examined.evidence.run.machine;
  if (!machine || examined.facts().process.cuda.empty()) return {};
  for (const auto& device : machine->cuda.answers.devices) {
    if (device.launch.is(0)) return device.name;
  }
  return {};
}

Matches on_cpu(const Case& examined) {
  const auto* model = examined.facts().largest_model();
  const auto gpu = working_gpu(examined);
  if (model == nullptr || model->devices.empty() || examined.facts().on_gpu() || examined.on_gpu() || gpu.empty())
    return {};
  const double computing = on_cpu_ms(examined);
  Match match;
  match.near({set_at(examined.source, {"torch.device"}),
              examined.facts().optimizers.empty() ? model::Site{} : examined.facts().optimizers.front().site});
  match.costs(computing, computing * (1 - keeps("model-on-cpu")), examined.step_ms());
  match.fact("pid", std::to_string(examined.evidence.trainer->pid));
  match.fact("python", examined.facts().process.executable.empty() ? "python3" : examined.facts().process.executable);
  return {match.saw("parameters", listed(model->devices), model->class_name).saw("GPU", gpu, "works")};
}

Matches two_devices(const Case& examined) {
  const auto* model = examined.facts().largest_model();
  if (model == nullptr || !has_prefix(model->devices, "cpu") || !has_prefix(model->devices, "cuda")) return {};
  Match match;
  match.fact("name", model->class_name).fact("value", listed(model->devices));
  return {match.saw("parameters", listed(model->devices), model->class_name)};
}

Matches inputs_elsewhere(const Case& examined) {
  const auto& check = examined.facts().device_check;
  if (!check || check->consistent != false || examined.facts().data_parallel) return {};
  const bool elsewhere =
      has_prefix(check->parameters, "cuda") && has_prefix(check->inputs, "cpu") && !has_prefix(check->inputs, "cuda");
  if (!elsewhere || has_prefix(check->parameters, "cpu")) return {};
  Match match;
  match.fact("device", check->parameters.begin()->first).fact("value", check->inputs.begin()->first);
  return {match.saw("parameters", listed(check->parameters), "checked in a step")
              .saw("inputs", listed(check->inputs), "checked in a step")};
}

bool several_ranks(const Case& examined) {
  return examined.facts().data_parallel ||
         (examined.facts().distributed && examined.facts().distributed->world_size > 1);
}

/// As `fullwatt select` would have chosen before the run. Only a card that is clearly faster is named.
Matches slower_gpu(const Case& examined) {
  const auto& run = examined.evidence.run;
  if (!run.machine || !run.info.gpu_asked.empty() || several_ranks(examined) || examined.gpu.uuid.empty() ||
      !examined.evidence.gpu_time.known())
    return {};
  const auto selection = doctor::select_gpu(*run.machine);
  const auto* best = selection.selected();
  if (best == nullptr || best->uuid == examined.gpu.uuid || !examined.evidence.peaks) return {};
  const auto peaks = catalog::gpu_peaks(best->device_name, {.compute_capability = best->compute_capability});
  if (!peaks || examined.evidence.peaks->peaks.fp32 <= 0) return {};
  const double ratio = peaks->peaks.fp32 / examined.evidence.peaks->peaks.fp32;
  if (ratio < 1.2) return {};
  const double busy = examined.evidence.gpu_time.busy_ms;
  Match match;
  match.costs(busy, 0.7 * busy * (1 - 1 / ratio), examined.step_ms());
  match.fact("gpu", name_of(examined.gpu)).fact("expected", best->device_name);
  return {match.saw("trained on", examined.gpu.uuid, "checked in a step")
              .saw("select would take", best->uuid, selection.reason)};
}

Matches not_as_asked(const Case& examined) {
  const auto& asked = examined.evidence.run.info.gpu_asked;
  if (asked.empty()) return {};
  const auto* model = examined.facts().largest_model();
  const bool on_cpu = model != nullptr && !model->devices.empty() && !examined.facts().on_gpu();
  const auto used = on_cpu ? std::string("cpu") : examined.gpu.uuid;
  if (used.empty() || used == asked) return {};
  Match match;
  match.fact("expected", asked).fact("value", used);
  return {match.saw("asked for", asked, "--gpu").saw("computed on", used, "checked in a step")};
}

/// Compute processes that held the GPU before the training came.
Matches shared(const Case& examined) {
  const auto* device = examined.gpu.nvml;
  if (device == nullptr || !device->processes || device->utilization_gpu.value_or(0) < 5) return {};
  std::vector<std::string> others;
  for (const auto& process : *device->processes) {
    const auto own = [&](const model::TrainingProcess& candidate) { return candidate.pid == process.pid; };
    if (process.kind != "compute" || std::ranges::any_of(examined.evidence.run.processes, own)) continue;
    others.push_back(
        fmt::format("{} ({})", process.name.empty() ? "?" : base::printable(process.name, 40), process.pid));
  }
  if (others.empty()) return {};
  Match match;
  match.fact("process", base::join(others, ", ")).fact("count", std::to_string(others.size()));
  match.fact("gpu", name_of(examined.gpu)).fact("value", std::to_string(*device->utilization_gpu));
  return {match.saw("GPU busy before the run", fmt::format("{} %", *device->utilization_gpu), "NVML")};
}

constexpr std::array kRules{
    Rule{"model-on-cpu", on_cpu},
    Rule{"parameters-on-two-devices", two_devices},
    Rule{"inputs-on-another-device", inputs_elsewhere},
    Rule{"slower-gpu-used", slower_gpu},
    Rule{"gpu-not-as-asked", not_as_asked},
    Rule{"gpu-shared", shared},
};

}  // namespace

std::span<const Rule> device_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
