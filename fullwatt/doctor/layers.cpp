#include "fullwatt/doctor/layers.hpp"

#include <algorithm>
#include <set>

#include "catalog/catalog.hpp"
#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"

namespace fullwatt::doctor {
namespace {

using model::Layer;
using model::LayerStatus;
using model::Machine;
using State = LayerStatus::State;

/// "2 × NVIDIA H200, Intel graphics".
std::string count_names(const std::vector<std::string>& names) {
  std::vector<std::string> parts;
  std::set<std::string> seen;
  for (const auto& name : names) {
    if (!seen.insert(name).second) continue;
    const auto count = std::ranges::count(names, name);
    parts.push_back(count > 1 ? fmt::format("{} × {}", count, name) : name);
  }
  return base::join(parts, ", ");
}

/// Whether Windows shares an NVIDIA GPU with this WSL; /dev/dxg alone may belong to any vendor's GPU.
bool shared_by_windows(const Machine& machine) {
  return machine.driver.wsl.dxg && machine.driver.wsl.libcuda;
}

LayerStatus hardware(const Machine& machine) {
  std::vector<std::string> names;
  bool asleep = false;
  for (const auto* gpu : machine.hardware.nvidia()) {
    const auto* known = machine.gpu_by_bdf(gpu->bdf);
    names.push_back(known != nullptr && !known->name.empty() ? known->name : gpu->name);
    asleep = asleep || gpu->asleep();
  }
  if (names.empty()) {
    for (const auto& gpu : machine.gpus) names.push_back(gpu.name);
  }
  for (const auto& gpu : machine.hardware.gpus) {
    if (gpu.vendor == model::kIntel || gpu.vendor == model::kAmd) names.push_back(gpu.name);
  }
  if (!machine.hardware.pci_devices && names.empty())
    return {Layer::hardware, State::unknown, "the PCI bus cannot be listed"};
  const bool nvidia = !machine.hardware.nvidia().empty() || !machine.gpus.empty() || shared_by_windows(machine);
  auto summary = names.empty() ? std::string("no GPU on the PCI bus") : count_names(names);
  if (!nvidia && !names.empty()) summary += ", no NVIDIA GPU";
  if (names.empty() && shared_by_windows(machine)) summary = "a GPU shared by Windows (/dev/dxg)";
  if (asleep) summary += ", asleep";
  return {Layer::hardware, nvidia ? State::works : State::not_applicable, summary};
}

LayerStatus driver(const Machine& machine) {
  if (machine.driver.wsl.version == 2 && machine.nvml.works()) {
    return {Layer::driver, State::works,
            fmt::format("Windows driver {} through WSL2", machine.nvml.driver_version.value_or("?"))};
  }
  const bool answers = machine.nvml.works() && !machine.nvml.devices.empty();
  if (!machine.driver.loaded) {
    if (answers) return {Layer::driver, State::works, fmt::format("{}", machine.nvml.driver_version.value_or("?"))};
    return {Layer::driver, State::broken, "the NVIDIA kernel module is not loaded"};
  }
  auto summary = fmt::format("{}{}", machine.driver.version.value_or("unknown version"),
                             machine.driver.flavour.empty() ? "" : ", " + machine.driver.flavour + " kernel module");
  if (answers) return {Layer::driver, State::works, summary};
  if (!machine.nvml.init && machine.nvml.init.error().reason == base::Absent::asleep) {
    return {Layer::driver, State::unknown, summary + ", not asked while the GPU sleeps"};
  }
  if (machine.nvml.init)
    return {Layer::driver, State::broken,
            fmt::format("{}, NVML {} {}", summary, *machine.nvml.init, catalog::nvml_code_name(*machine.nvml.init))};
  return {Layer::driver, State::broken, summary + ", NVML gives no answer"};
}

LayerStatus cuda(const Machine& machine) {
  const auto& answers = machine.cuda.answers;
  if (!answers.init) {
    const auto& why = answers.init.error();
    if (why.reason == base::Absent::asleep) return {Layer::cuda, State::unknown, "not asked while the GPU sleeps"};
    if (why.reason == base::Absent::not_asked) return {Layer::cuda, State::unknown, "not asked"};
    return {Layer::cuda, State::broken,
            why.reason == base::Absent::timed_out ? "libcuda gives no answer" : "libcuda cannot be loaded"};
  }
  if (*answers.init != 0)
    return {Layer::cuda, State::broken,
            fmt::format("cuInit: {} {}", *answers.init, catalog::cuda_code_name(*answers.init))};
  const auto version = answers.driver_version ? base::cuda_version_text(*answers.driver_version) : std::string("?");
  const auto ran = std::ranges::count_if(answers.devices, [](const auto& device) { return device.launch.is(0); });
  const auto asked =
      std::ranges::count_if(answers.devices, [](const auto& device) { return device.launch || device.context; });
  auto summary = fmt::format("CUDA {}, {} device{}, a test kernel ran on {}", version, answers.devices.size(),
                             answers.devices.size() == 1 ? "" : "s", ran);
  return {Layer::cuda,
          !answers.devices.empty() && ran >= std::max<std::ptrdiff_t>(asked, 1) ? State::works : State::broken,
          summary};
}

LayerStatus pytorch(const Machine& machine) {
  const auto& answers = machine.torch.answers;
  if (machine.torch.interpreter.empty()) return {Layer::pytorch, State::not_applicable, "no Python found"};
  if (!answers.version) {
    if (answers.version.error().reason == base::Absent::not_there)
      return {Layer::pytorch, State::not_applicable, "no PyTorch in " + machine.torch.interpreter};
    if (answers.version.error().reason == base::Absent::not_asked) return {Layer::pytorch, State::unknown, "not asked"};
    return {Layer::pytorch, State::broken, "import torch fails in " + machine.torch.interpreter};
  }
  auto summary = fmt::format("{} in {}", *answers.version, machine.torch.interpreter);
  if (answers.available.is(true)) {
    const auto ok = [](const auto& device) { return device.operation.is("ok"); };
    const bool works = std::ranges::all_of(answers.devices, ok);
    return {Layer::pytorch, works ? State::works : State::broken,
            summary + (works ? ", a matrix product ran on the GPU" : ", an operation on the GPU fails")};
  }
  if (!answers.available) return {Layer::pytorch, State::unknown, summary + ", GPU not asked"};
  const bool gpu_expected = !machine.hardware.nvidia().empty() || shared_by_windows(machine);
  return {Layer::pytorch, gpu_expected ? State::broken : State::not_applicable, summary + ", sees no GPU"};
}

LayerStatus application(const Machine& machine) {
  const auto cpus = base::number_list(machine.host.system.cpus).size();
  auto summary = fmt::format("{} of {} CPUs allowed", cpus, machine.host.system.online_cpus);
  if (machine.host.cpu_quota) summary += fmt::format(", quota {:.3g}", *machine.host.cpu_quota);
  if (machine.host.system.shm_total_bytes)
    summary += fmt::format(", /dev/shm {} MiB", *machine.host.system.shm_total_bytes >> 20U);
  if (machine.process)
    summary =
        fmt::format("process {} ({}), ", machine.process->pid, base::printable(machine.process->name, 40)) + summary;
  return {Layer::application, State::works, summary};
}

/// A layer whose own summary is fine is still broken or degraded by what was found in it.
void grade(LayerStatus& status, const model::Diagnosis& diagnosis) {
  for (const auto& finding : diagnosis.findings) {
    if (finding.layer != status.layer || !finding.consequence_of.empty()) continue;
    if (finding.severity == model::Severity::error) status.state = State::broken;
    if (finding.severity == model::Severity::warning && status.state == State::works) status.state = State::degraded;
  }
}

}  // namespace

std::vector<LayerStatus> layer_statuses(const Machine& machine, const model::Diagnosis& diagnosis) {
  std::vector<LayerStatus> all{hardware(machine), driver(machine), cuda(machine), pytorch(machine),
                               application(machine)};
  const bool no_gpu = all.front().state == State::not_applicable && diagnosis.root_cause.empty();
  for (auto& status : all) {
    const bool gpu_layer = status.layer == Layer::driver || status.layer == Layer::cuda;
    if (no_gpu && gpu_layer && status.state == State::broken) status.state = State::not_applicable;
    grade(status, diagnosis);
  }
  return all;
}

}  // namespace fullwatt::doctor
