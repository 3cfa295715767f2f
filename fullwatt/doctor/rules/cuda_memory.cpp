// Who holds the memory of the GPU.

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include <fmt/format.h>

#include "fullwatt/base/pattern.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/rules/rule.hpp"
#include "fullwatt/doctor/rules/torch_facts.hpp"

namespace fullwatt::doctor {
namespace {

using model::GpuProcess;
using model::Machine;
using model::NvmlDevice;
using model::Severity;

constexpr std::uint64_t kMib = 1024UL * 1024;
/// A desktop that takes less than this is as every desktop is.
constexpr std::uint64_t kDesktopBytes = 512 * kMib;
constexpr std::uint64_t kDesktopShare = 7;  ///< one part in so many of the GPU's memory
/// What driver and contexts take beside the processes' own figures, with room to spare.
constexpr std::uint64_t kUnexplainedBytes = 1536 * kMib;
constexpr std::uint64_t kUnexplainedShare = 32;
/// Held by others: from this share on a training of usual size does not fit beside it.
constexpr std::uint64_t kOtherBytes = 1024 * kMib;
constexpr std::uint64_t kOtherShare = 4;
constexpr std::uint64_t kOtherShareBesideTraining = 10;
constexpr int kIdlePercent = 5;
constexpr int kVgpu = 2;

std::string mib(std::uint64_t bytes) {
  return std::to_string(bytes / kMib);
}

std::string process_text(const GpuProcess& process) {
  return fmt::format("{} {} {} MiB", process.pid, base::printable(process.name, 60),
                     mib(process.memory_bytes.value_or(0)));
}

std::vector<GpuProcess> processes_of(const NvmlDevice& device, std::string_view kind) {
  std::vector<GpuProcess> found;
  for (const auto& process : device.processes.value_or(std::vector<GpuProcess>{})) {
    if (process.kind == kind && process.memory_bytes) found.push_back(process);
  }
  std::ranges::sort(found, std::ranges::greater{}, [](const auto& process) { return *process.memory_bytes; });
  return found;
}

std::uint64_t sum(const std::vector<GpuProcess>& processes) {
  std::uint64_t bytes = 0;
  for (const auto& process : processes) bytes += process.memory_bytes.value_or(0);
  return bytes;
}

std::optional<Match> vram_used_by_desktop(const Machine& machine) {
  Match match;
  for (const auto& device : machine.nvml.devices) {
    const auto windows = processes_of(device, "graphics");
    const auto held = sum(windows);
    if (held < kDesktopBytes || !device.memory_total_bytes || held < *device.memory_total_bytes / kDesktopShare)
      continue;
    const auto bdf = device.bdf.value_or("");
    match.about(machine, bdf).fact("memory_mib", mib(held));
    match.saw("held by windows", fmt::format("{} of {} MiB", mib(held), mib(*device.memory_total_bytes)),
              machine.gpu_label(bdf));
    for (const auto& process : windows) match.saw("process", process_text(process), "NVML");
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

bool runs_on(const NvmlDevice& device, int pid) {
  return device.processes &&
         std::ranges::any_of(*device.processes, [&](const auto& process) { return process.pid == pid; });
}

/// Compute processes that are not the training asked about; the MPS server only passes on what others hold.
std::vector<GpuProcess> others_on(const Machine& machine, const NvmlDevice& device) {
  auto others = processes_of(device, "compute");
  std::erase_if(others, [&](const auto& process) {
    return (machine.process && machine.process->pid == process.pid) || process.name.starts_with("nvidia-cuda-mps");
  });
  return others;
}

bool ran_out(const Machine& machine, const NvmlDevice& device) {
  const auto* cuda = machine.cuda_by_bdf(device.bdf.value_or(""));
  if (cuda != nullptr &&
      (cuda->context.is(model::cuda_code::kOutOfMemory) || cuda->launch.is(model::cuda_code::kOutOfMemory)))
    return true;
  return std::ranges::any_of(machine.torch.answers.devices, [&](const auto& tried) {
    return device.uuid.is(tried.uuid) && tried.operation &&
           base::contains(base::lower(*tried.operation), "out of memory");
  });
}

/// A GPU at work is somebody's training, perhaps the user's own; an idle one whose memory is held is in the way.
Severity severity_of_others(const Machine& machine, const NvmlDevice& device) {
  if (ran_out(machine, device)) return Severity::error;
  const bool beside_training = machine.process && runs_on(device, machine.process->pid);
  const bool idle = device.utilization_gpu && *device.utilization_gpu <= kIdlePercent;
  return beside_training || idle ? Severity::warning : Severity::note;
}

std::optional<Match> vram_used_by_other_process(const Machine& machine) {
  Match match;
  for (const auto& device : machine.nvml.devices) {
    const auto others = others_on(machine, device);
    const bool beside_training = machine.process && runs_on(device, machine.process->pid);
    const auto share = beside_training ? kOtherShareBesideTraining : kOtherShare;
    const auto held = sum(others);
    if (held < kOtherBytes || !device.memory_total_bytes || held < *device.memory_total_bytes / share) continue;
    const auto bdf = device.bdf.value_or("");
    match.about(machine, bdf)
        .fact("pid", std::to_string(others.front().pid))
        .fact("value", mib(*others.front().memory_bytes) + " MiB");
    for (const auto& process : others) match.saw("process", process_text(process), machine.gpu_label(bdf));
    match.severity = std::max(match.severity.value_or(Severity::note), severity_of_others(machine, device));
  }
  const bool ended_training = log_shows(machine, "vram-used-by-other-process");
  if (ended_training) {
    match = {};  // the message names the process of that time
    match.severity = Severity::error;
  }
  return match.evidence.empty() && !ended_training ? std::nullopt : std::optional(match);
}

/// The memory of every process, each counted once; nothing where one of them cannot be read.
std::optional<std::uint64_t> explained(const NvmlDevice& device) {
  if (!device.processes) return std::nullopt;
  std::map<int, std::uint64_t> by_pid;  // one with windows and kernels stands in both lists
  for (const auto& process : *device.processes) {
    if (!process.memory_bytes) return std::nullopt;
    by_pid[process.pid] = std::max(by_pid[process.pid], *process.memory_bytes);
  }
  std::uint64_t bytes = 0;
  for (const auto& [pid, memory] : by_pid) bytes += memory;
  return bytes;
}

/// Memory in use that belongs to no process in NVML's list; 0 where that cannot be told.
std::uint64_t unexplained(const NvmlDevice& device) {
  const auto known = explained(device);
  if (!known || !device.memory_used_bytes || !device.memory_total_bytes) return 0;
  if (device.mig_enabled.is(true) || device.virtualization.is(kVgpu)) return 0;  // others' slices are not listed
  if (*device.memory_used_bytes <= *known) return 0;
  const auto rest = *device.memory_used_bytes - *known;
  return rest >= std::max(kUnexplainedBytes, *device.memory_total_bytes / kUnexplainedShare) ? rest : 0;
}

/// Processes that have the GPU open and that NVML does not list.
void show_suspects(Match& match, const Machine& machine, const NvmlDevice& device) {
  for (const auto& process : machine.host.system.processes) {
    const auto uses_memory = [](const auto& node) { return node == "/dev/nvidia-uvm"; };
    const bool open = std::ranges::any_of(process.gpu_nodes, uses_memory);
    const bool stuck = process.state == "Z" || process.state == "D";
    if ((!open && !stuck) || runs_on(device, process.pid)) continue;
    match.saw("process", fmt::format("{} {}, state {}", process.pid, base::printable(process.name, 60), process.state),
              "/proc");
  }
}

std::optional<Match> vram_held_by_orphan(const Machine& machine) {
  if (machine.driver.wsl.version != 0) return std::nullopt;  // NVML lists no processes there
  Match match;
  for (const auto& device : machine.nvml.devices) {
    const auto rest = unexplained(device);
    if (rest == 0) continue;
    const auto bdf = device.bdf.value_or("");
    match.about(machine, bdf).fact("memory_mib", mib(rest));
    match.saw("in use",
              fmt::format("{} MiB, {} MiB of it by no listed process", mib(*device.memory_used_bytes), mib(rest)),
              machine.gpu_label(bdf));
    show_suspects(match, machine, device);
  }
  if (match.evidence.empty()) return std::nullopt;
  // From inside a container the processes of others are never listed.
  if (machine.driver.container.inside()) match.severity = Severity::note;
  return match;
}

std::optional<double> decimal(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// "1.20 GiB" as bytes; nothing when it is something else.
std::optional<double> size_bytes(std::string_view text) {
  text = base::trim(text);
  const auto blank = text.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  constexpr std::array kUnits{std::pair{"bytes", 1.0}, std::pair{"KiB", 1024.0}, std::pair{"MiB", 1048576.0},
                              std::pair{"GiB", 1073741824.0}};
  const auto unit = std::ranges::find(kUnits, text.substr(blank + 1),
                                      [](const auto& known) { return std::string_view(known.first); });
  const auto value = decimal(text.substr(0, blank));
  return unit != kUnits.end() && value ? std::optional(*value * unit->second) : std::nullopt;
}

/// What PyTorch has reserved and does not use, in the wording since 2.1 or in the one before.
std::optional<double> unused_reserve(std::string_view line) {
  if (const auto now =
          base::match("is allocated by PyTorch, and {unused} is reserved by PyTorch but unallocated", line)) {
    return size_bytes(now->at("unused"));
  }
  const auto before = base::match(
      "total capacity; {allocated} already allocated; {free} free; {reserved} reserved in total by PyTorch", line);
  if (!before) return std::nullopt;
  const auto allocated = size_bytes(before->at("allocated"));
  const auto reserved = size_bytes(before->at("reserved"));
  return allocated && reserved ? std::optional(*reserved - *allocated) : std::nullopt;
}

/// What was asked for, in either wording.
std::optional<double> request_of(std::string_view line) {
  for (const auto* pattern :
       {"out of memory. Tried to allocate {size} (GPU", "out of memory. Tried to allocate {size}. GPU"}) {
    const auto found = base::match(pattern, line);
    if (auto bytes = found ? size_bytes(found->at("size")) : std::nullopt) return bytes;
  }
  return std::nullopt;
}

std::optional<Match> vram_fragmentation(const Machine& machine) {
  for (const auto& line : *machine.log) {
    const auto wanted = request_of(line);
    const auto unused = unused_reserve(line);
    if (!wanted || !unused || *unused < *wanted) continue;
    return Match{}.saw("message", base::printable(base::trim(line), 600), "training log");
  }
  return std::nullopt;
}

constexpr std::array kRules{
    Rule{"vram-used-by-desktop", kNvml, vram_used_by_desktop},
    Rule{"vram-used-by-other-process", kNothing, vram_used_by_other_process},
    Rule{"vram-held-by-orphan", kNvml, vram_held_by_orphan},
    Rule{"vram-fragmentation", kTrainingLog, vram_fragmentation},
};

}  // namespace

std::span<const Rule> cuda_memory_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
