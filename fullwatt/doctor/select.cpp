#include "fullwatt/doctor/select.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/doctor/archs.hpp"

namespace fullwatt::doctor {
namespace {

using model::GpuStatus;
using model::Machine;

constexpr int kBusyPercent = 25;

struct Candidate {
  GpuStatus status;
  double throughput = 0;  ///< cores × clock: only compares GPUs of one machine
};

/// Whether a token of CUDA_VISIBLE_DEVICES means this GPU: a UUID or its beginning, or an index in PCI order.
bool token_names(std::string_view token, const GpuStatus& gpu, int pci_position) {
  token = base::trim(token);
  if (token.starts_with("GPU-") || token.starts_with("MIG-")) return !gpu.uuid.empty() && gpu.uuid.starts_with(token);
  return base::number<int>(token) == pci_position;
}

/// Whether a token of CUDA_VISIBLE_DEVICES means one of the slices of a GPU in MIG mode.
bool token_names_slice(std::string_view token, const model::NvmlDevice* nvml) {
  token = base::trim(token);
  const auto is_named = [&](const auto& slice) { return slice.uuid.starts_with(token); };
  return token.starts_with("MIG-") && nvml != nullptr && std::ranges::any_of(nvml->mig_slices, is_named);
}

/// What the user's own setting leaves visible. Where CUDA answered under it, its answer counts; else the text.
bool visible_to_user(const Machine& machine, const GpuStatus& gpu, const model::NvmlDevice* nvml, int pci_position) {
  const auto setting = machine.variable("CUDA_VISIBLE_DEVICES");
  if (!setting) return true;
  if (machine.cuda.works()) {
    const auto is_this = [&](const auto& device) { return device.bdf == gpu.bdf; };
    return std::ranges::any_of(machine.cuda.answers.devices, is_this);
  }
  for (auto token : base::split(*setting, ',')) {
    if (token_names(token, gpu, pci_position) || token_names_slice(token, nvml)) return true;
    // Everything after the first entry that means nothing is ignored by CUDA.
    if (!base::number<unsigned>(token) && !base::trim(token).starts_with("GPU-") &&
        !base::trim(token).starts_with("MIG-"))
      return false;
  }
  return false;
}

const model::PciGpu* pci_of(const Machine& machine, const std::string& bdf) {
  const auto at = std::ranges::find(machine.hardware.gpus, bdf, &model::PciGpu::bdf);
  return at == machine.hardware.gpus.end() ? nullptr : &*at;
}

/// Why this GPU cannot be trained on; empty when it can.
std::string obstacle(const Machine& machine, const GpuStatus& gpu, const model::NvmlDevice* nvml, int pci_position) {
  const auto* pci = pci_of(machine, gpu.bdf);
  if (pci != nullptr && pci->config_all_ones) return "no longer answers on the PCI bus";
  if (pci != nullptr && pci->driver && *pci->driver != "nvidia") return "held by the driver " + *pci->driver;
  if (pci != nullptr && !pci->driver && machine.driver.wsl.version == 0 && nvml == nullptr)
    return "no NVIDIA driver is bound to it";
  if (pci != nullptr && pci->proc_excluded.is("Yes")) return "excluded by a module option";
  if (nvml != nullptr && nvml->handle_code != 0) return fmt::format("NVML cannot open it (code {})", nvml->handle_code);
  if (nvml != nullptr && nvml->compute_mode.is(2)) return "compute mode is prohibited";
  if (nvml != nullptr && nvml->compute_mode.is(3) && nvml->processes && !nvml->processes->empty()) {
    return "compute mode is exclusive and another process holds it";
  }
  if (machine.nvml.works() && nvml == nullptr) return "NVML does not list it";
  if (!visible_to_user(machine, gpu, nvml, pci_position)) return "hidden by CUDA_VISIBLE_DEVICES";
  const auto& init = machine.cuda.answers.init;
  if (init && *init != 0) return fmt::format("CUDA does not start (code {})", *init);
  if (!init && init.error().reason == base::Absent::not_there) return "libcuda is not found";
  if (!init && (init.error().reason == base::Absent::timed_out || init.error().reason == base::Absent::failed)) {
    return "libcuda gives no answer";
  }
  const auto* cuda = machine.cuda_by_bdf(gpu.bdf);
  if (cuda == nullptr && machine.cuda.works()) return "CUDA does not list it";
  if (cuda != nullptr && ((cuda->context && *cuda->context != 0) || (cuda->launch && *cuda->launch != 0)))
    return "a test kernel fails on it";
  const auto& archs = machine.torch.answers.archs;
  if (!archs.empty() && !gpu.compute_capability.empty() && !covers(archs, gpu.compute_capability)) {
    return "the installed PyTorch has no kernels for compute capability " + gpu.compute_capability;
  }
  return {};
}

bool is_busy(const model::NvmlDevice& nvml) {
  if (nvml.utilization_gpu && *nvml.utilization_gpu >= kBusyPercent) return true;
  return nvml.memory_total_bytes && nvml.memory_free_bytes && *nvml.memory_free_bytes < *nvml.memory_total_bytes / 2;
}

Candidate nvidia_candidate(const Machine& machine, const model::GpuIdentity& identity, int pci_position) {
  Candidate candidate;
  auto& status = candidate.status;
  const auto* nvml = machine.nvml_by_bdf(identity.bdf);
  const auto* pci = pci_of(machine, identity.bdf);
  status.device_id = identity.nvml_index.value_or(-1);
  status.device_name = identity.name;
  status.uuid = identity.uuid;
  status.bdf = identity.bdf;
  status.is_discrete = pci == nullptr || pci->discrete;
  if (const auto* cuda = machine.cuda_by_bdf(identity.bdf)) {
    status.compute_capability = cuda->compute_capability;
    if (cuda->integrated) status.is_discrete = false;
  }
  if (nvml != nullptr) {
    status.memory_total_bytes = nvml->memory_total_bytes;
    status.memory_free_bytes = nvml->memory_free_bytes;
    if (nvml->compute_capability) status.compute_capability = *nvml->compute_capability;
    status.is_busy = is_busy(*nvml);
    candidate.throughput = static_cast<double>(nvml->cores.value_or(0)) * nvml->max_clock_sm_mhz.value_or(0);
  }
  const auto why_not = obstacle(machine, status, nvml, pci_position);
  status.is_available = why_not.empty();
  if (!why_not.empty()) status.reasons.push_back(why_not);
  if (status.is_busy) status.reasons.emplace_back("busy with other work");
  if (pci != nullptr && pci->asleep()) status.reasons.emplace_back("asleep; the first CUDA call wakes it");
  return candidate;
}

/// A setting that names slices leaves only those visible.
bool hides_slice(const std::optional<std::string>& setting, const model::MigSlice& slice) {
  if (!setting || !base::contains(*setting, "MIG-")) return false;
  const auto names = [&](auto token) {
    return base::trim(token).starts_with("MIG-") && slice.uuid.starts_with(base::trim(token));
  };
  return std::ranges::none_of(base::split(*setting, ','), names);
}

/// A GPU in MIG mode is used by its slices, never as a whole.
std::vector<Candidate> mig_candidates(const Machine& machine, const Candidate& whole, const model::NvmlDevice& nvml) {
  std::vector<Candidate> slices;
  for (const auto& slice : nvml.mig_slices) {
    auto candidate = whole;
    candidate.status.device_name = slice.name;
    candidate.status.uuid = slice.uuid;
    candidate.status.memory_total_bytes = slice.memory_total_bytes;
    candidate.status.memory_free_bytes = slice.memory_free_bytes;
    candidate.status.is_busy = false;
    if (hides_slice(machine.variable("CUDA_VISIBLE_DEVICES"), slice)) {
      candidate.status.is_available = false;
      candidate.status.reasons.emplace_back("hidden by CUDA_VISIBLE_DEVICES");
    }
    slices.push_back(std::move(candidate));
  }
  return slices;
}

Candidate other_candidate(const model::PciGpu& gpu) {
  Candidate candidate;
  candidate.status.device_name = gpu.name.empty() ? "display adapter" : gpu.name;
  candidate.status.bdf = gpu.bdf;
  candidate.status.is_discrete = gpu.discrete;
  candidate.status.reasons.emplace_back(gpu.discrete ? "not an NVIDIA GPU, so not usable by CUDA"
                                                     : "integrated, not usable by CUDA");
  return candidate;
}

std::vector<Candidate> candidates(const Machine& machine) {
  std::vector<Candidate> all;
  auto in_pci_order = machine.gpus;
  std::ranges::sort(in_pci_order, {}, &model::GpuIdentity::bdf);
  for (std::size_t i = 0; i < in_pci_order.size(); ++i) {
    auto candidate = nvidia_candidate(machine, in_pci_order[i], static_cast<int>(i));
    const auto* nvml = machine.nvml_by_bdf(in_pci_order[i].bdf);
    if (nvml == nullptr || !nvml->mig_enabled.is(true)) {
      all.push_back(std::move(candidate));
    } else if (nvml->mig_slices.empty()) {
      candidate.status.is_available = false;
      candidate.status.reasons.emplace_back("in MIG mode without an instance");
      all.push_back(std::move(candidate));
    } else {
      std::ranges::move(mig_candidates(machine, candidate, *nvml), std::back_inserter(all));
    }
  }
  for (const auto& gpu : machine.hardware.gpus) {
    if (!gpu.is_nvidia()) all.push_back(other_candidate(gpu));
  }
  return all;
}

/// Smaller is better.
auto rank(const Candidate& c) {
  return std::tuple(!c.status.is_available, !c.status.is_discrete, c.status.is_busy, -c.throughput,
                    -static_cast<double>(c.status.memory_total_bytes.value_or(0)),
                    -static_cast<double>(c.status.memory_free_bytes.value_or(0)), c.status.bdf, c.status.uuid);
}

std::string explain_choice(const std::vector<GpuStatus>& gpus) {
  if (gpus.empty()) return "There is no GPU in this machine; training runs on the CPU.";
  const auto& best = gpus.front();
  if (!best.is_available) return "No GPU of this machine can be used by CUDA now; 'fullwatt doctor' says why.";
  const auto usable = std::ranges::count_if(gpus, &GpuStatus::is_available);
  const auto* kind = best.is_discrete ? "discrete" : "integrated";
  if (usable == 1) return fmt::format("{} is the only GPU that CUDA can use here; it is {}.", best.device_name, kind);
  return fmt::format("{} is {}{} and the most capable of {} usable GPUs.", best.device_name, kind,
                     best.is_busy ? " (all are busy)" : ", free", usable);
}

/// As drivers write them. A saved machine may say anything, and this text goes into a shell.
bool is_uuid(std::string_view text) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '/'; };
  return (text.starts_with("GPU-") || text.starts_with("MIG-")) && std::ranges::all_of(text, allowed);
}

}  // namespace

model::Selection select_gpu(const Machine& machine) {
  auto all = candidates(machine);
  std::ranges::sort(all, {}, rank);
  model::Selection selection;
  for (auto& candidate : all) selection.gpus.push_back(std::move(candidate.status));
  if (!selection.gpus.empty() && selection.gpus.front().is_available) selection.gpus.front().is_selected = true;
  selection.reason = explain_choice(selection.gpus);
  return selection;
}

std::string export_lines(const model::Selection& selection) {
  const auto* gpu = selection.selected();
  if (gpu == nullptr || !is_uuid(gpu->uuid)) return {};
  return fmt::format("export CUDA_DEVICE_ORDER=PCI_BUS_ID\nexport CUDA_VISIBLE_DEVICES={}\n", gpu->uuid);
}

}  // namespace fullwatt::doctor
