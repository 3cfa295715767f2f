// What is seen when a layer does not work: explained by whatever cause the other rules find below it.

#include <algorithm>
#include <array>

#include "catalog/catalog.hpp"
#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/rules/gpu_state.hpp"
#include "fullwatt/doctor/rules/rule.hpp"
#include "fullwatt/doctor/rules/torch_facts.hpp"

namespace fullwatt::doctor {
namespace {

using model::Machine;

std::string nvml_text(int code) {
  return fmt::format("{} {}", code, catalog::nvml_code_name(code));
}

std::string cuda_text(int code) {
  return fmt::format("{} {}", code, catalog::cuda_code_name(code));
}

bool has_nvidia_gpu(const Machine& machine) {
  return !machine.hardware.nvidia().empty() || (machine.driver.wsl.dxg && machine.driver.wsl.libcuda);
}

bool has_driver(const Machine& machine) {
  return machine.driver.loaded || !machine.cuda.libcuda.empty() || machine.nvml.library.has_value();
}

std::optional<Match> no_nvidia_gpu(const Machine& machine) {
  if (has_nvidia_gpu(machine) || machine.nvml.works() || gpu_expected(machine)) return std::nullopt;
  Match match;
  match.saw("devices on the PCI bus", std::to_string(machine.hardware.pci_devices.value_or(0)), "/sys/bus/pci/devices");
  for (const auto& gpu : machine.hardware.gpus)
    match.saw("display device", gpu.name + " " + gpu.bdf, "/sys/bus/pci/devices");
  return match;
}

std::optional<Match> nvml_fails(const Machine& machine) {
  const auto& init = machine.nvml.init;
  if (!has_nvidia_gpu(machine)) return std::nullopt;
  if (init && *init != 0) return Match{}.fact("code", nvml_text(*init)).saw("nvmlInit", nvml_text(*init));
  if (init && machine.nvml.devices.empty()) return Match{}.fact("code", "no devices").saw("GPUs NVML lists", "0");
  if (init || init.error().reason == base::Absent::asleep || init.error().reason == base::Absent::not_asked)
    return std::nullopt;
  const auto detail = base::printable(init.error().detail, 200);
  return Match{}.fact("code", detail.empty() ? "no answer" : detail).saw("libnvidia-ml.so.1", detail);
}

std::optional<Match> cuda_fails(const Machine& machine) {
  const auto& init = machine.cuda.answers.init;
  if (!has_nvidia_gpu(machine)) return std::nullopt;
  if (init && *init != 0) return Match{}.fact("code", cuda_text(*init)).saw("cuInit", cuda_text(*init));
  if (init && machine.cuda.answers.devices.empty())
    return Match{}.fact("code", "no devices").saw("devices CUDA lists", "0");
  if (init || init.error().reason == base::Absent::asleep || init.error().reason == base::Absent::not_asked)
    return std::nullopt;
  const auto detail = base::printable(init.error().detail, 200);
  return Match{}.fact("code", detail.empty() ? "no answer" : detail).saw("libcuda.so.1", detail);
}

std::optional<Match> cuda_kernel_fails(const Machine& machine) {
  for (const auto& device : machine.cuda.answers.devices) {
    const bool bad_context = device.context && *device.context != 0;
    const bool bad_launch = device.launch && *device.launch != 0;
    const bool wrong_result = !device.launch && device.launch.error().reason == base::Absent::failed;
    if (!bad_context && !bad_launch && !wrong_result) continue;
    const auto code = bad_context  ? cuda_text(*device.context)
                      : bad_launch ? cuda_text(*device.launch)
                                   : device.launch.error().detail;
    return Match{}
        .about(machine, device.bdf)
        .fact("code", code)
        .saw(bad_context ? "creating a context" : "running a kernel", code, device.bdf);
  }
  return std::nullopt;
}

std::optional<Match> torch_not_found(const Machine& machine) {
  const auto& version = machine.torch.answers.version;
  if (machine.torch.interpreter.empty() || version || version.error().reason != base::Absent::not_there)
    return std::nullopt;
  return Match{}
      .fact("python", machine.torch.interpreter)
      .fact("index_tag", fitting_wheel(machine))
      .saw("interpreter", machine.torch.interpreter, machine.torch.interpreter_origin);
}

std::optional<Match> torch_import_fails(const Machine& machine) {
  const auto& version = machine.torch.answers.version;
  if (version || version.error().reason != base::Absent::failed) return std::nullopt;
  const auto lines = base::lines(base::trim(version.error().detail));
  const auto last = lines.empty() ? std::string("no message") : base::printable(lines.back(), 160);
  return Match{}
      .fact("value", last)
      .fact("python", machine.torch.interpreter)
      .saw("import torch", last, machine.torch.interpreter);
}

std::optional<Match> torch_sees_no_gpu(const Machine& machine) {
  const auto& answers = machine.torch.answers;
  if (!answers.available.is(false) || (!has_nvidia_gpu(machine) && !has_driver(machine))) return std::nullopt;
  Match match;
  match.fact("torch", answers.version.value_or(""))
      .fact("python", machine.torch.interpreter)
      .fact("index_tag", fitting_wheel(machine));
  match.saw("torch.cuda.is_available()", "False", machine.torch.interpreter);
  for (const auto& warning : answers.warnings) match.saw("torch says", base::printable(warning, 300));
  return match;
}

std::optional<Match> torch_operation_fails(const Machine& machine) {
  // Where is_available() is False, devices may still be counted through NVML; that is another finding.
  if (!machine.torch.answers.available.is(true)) return std::nullopt;
  for (const auto& device : machine.torch.answers.devices) {
    if (!device.operation || *device.operation == "ok") continue;
    const auto text = base::printable(*device.operation, 300);
    return Match{}
        .fact("gpu", device.name)
        .fact("value", text)
        .fact("python", machine.torch.interpreter)
        .fact("index_tag", fitting_wheel(machine))
        .saw("a matrix product on " + device.name, text);
  }
  return std::nullopt;
}

constexpr std::array kRules{
    Rule{"no-nvidia-gpu", kPci, no_nvidia_gpu},
    Rule{"nvml-fails", kNothing, nvml_fails},
    Rule{"cuda-fails", kNothing, cuda_fails},
    Rule{"cuda-kernel-fails", kCuda, cuda_kernel_fails},
    Rule{"torch-not-found", kNothing, torch_not_found},
    Rule{"torch-import-fails", kNothing, torch_import_fails},
    Rule{"torch-sees-no-gpu", kTorch, torch_sees_no_gpu},
    Rule{"torch-operation-fails", kTorch, torch_operation_fails},
};

}  // namespace

std::span<const Rule> symptom_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
