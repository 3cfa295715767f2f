// What the host gives the training: shared memory, processors, memory near the GPU.

#include <algorithm>
#include <array>
#include <cstdint>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/rules/process_facts.hpp"
#include "fullwatt/doctor/rules/rule.hpp"
#include "fullwatt/doctor/rules/torch_facts.hpp"

namespace fullwatt::doctor {
namespace {

using model::Machine;
using model::Severity;

constexpr std::uint64_t kMiB = 1024UL * 1024;
constexpr std::uint64_t kSmallShm = 128 * kMiB;  ///< Docker and Kubernetes give 64 MiB unless told otherwise
constexpr std::uint64_t kFullShm = 64 * kMiB;    ///< less than a few batches of images

std::string mib(std::uint64_t bytes) {
  return fmt::format("{} MiB", bytes / kMiB);
}

bool shm_is_small(const Machine& machine) {
  const auto& total = machine.host.system.shm_total_bytes;
  return machine.driver.container.inside() && total && *total <= kSmallShm && torch_build(machine);
}

bool shm_is_full(const Machine& machine) {
  const auto& total = machine.host.system.shm_total_bytes;
  const auto& free = machine.host.system.shm_free_bytes;
  return total && free && *free < kFullShm && *free < *total / 10 && torch_build(machine);
}

/// A risk, until a log shows that it stopped the training.
Match describe_shm(const Machine& machine, std::string_view id) {
  const auto& system = machine.host.system;
  Match match;
  if (!log_shows(machine, id)) match.severity = Severity::warning;
  match.saw("size of /dev/shm", mib(*system.shm_total_bytes), "statvfs");
  if (system.shm_free_bytes) match.saw("free in /dev/shm", mib(*system.shm_free_bytes), "statvfs");
  if (machine.driver.container.inside()) match.saw("container", machine.driver.container.kind);
  return match;
}

std::optional<Match> shm_too_small_loader(const Machine& machine) {
  const bool full = shm_is_full(machine) && machine.host.stale_nccl_files.empty();
  if (!shm_is_small(machine) && !full) return std::nullopt;
  auto match = describe_shm(machine, "shm-too-small-loader");
  if (machine.process)
    match.saw("child processes", std::to_string(machine.process->children),
              fmt::format("/proc/{}", machine.process->pid));
  return match;
}

std::optional<Match> shm_too_small_nccl(const Machine& machine) {
  const auto& stale = machine.host.stale_nccl_files;
  const bool small = shm_is_small(machine) && machine.cuda.answers.devices.size() > 1;
  if (!small && (stale.empty() || !shm_is_full(machine))) return std::nullopt;
  auto match = describe_shm(machine, "shm-too-small-nccl");
  match.saw("GPUs", std::to_string(machine.cuda.answers.devices.size()), "CUDA");
  if (!stale.empty()) match.saw("files of NCCL", fmt::format("{}, {} in all", stale.front(), stale.size()), "/dev/shm");
  return match;
}

std::optional<Match> loader_workers_too_many(const Machine& machine) {
  constexpr std::size_t kOthers = 2;  // children that are no workers, such as Python's resource tracker
  const auto& process = *machine.process;
  const auto allowed = allowed_cpus(machine).size();
  const auto children = process.child_pids.size();
  if (!process.imports_torch || !process.cpus || allowed == 0 || children <= allowed + kOthers) return std::nullopt;
  return Match{}
      .fact("count", std::to_string(children))
      .fact("limit", std::to_string(allowed))
      .saw("child processes", std::to_string(children), fmt::format("/proc/{}", process.pid))
      .saw("allowed processors", *process.cpus, fmt::format("/proc/{}/status", process.pid));
}

/// Paused in at least a tenth of the periods, as far as the kernel counts them.
bool is_throttled(const model::Host& host, std::size_t workers) {
  if (!host.cpu_throttled || !host.cpu_periods) return *host.cpu_quota * 2 < static_cast<double>(workers);
  return *host.cpu_throttled > 0 && *host.cpu_throttled * 10 >= *host.cpu_periods;
}

std::optional<Match> cpu_quota_starves_loader(const Machine& machine) {
  const auto& host = machine.host;
  const auto workers = machine.process->child_pids.size();
  if (!host.cpu_quota || *host.cpu_quota >= static_cast<double>(workers) || !is_throttled(host, workers))
    return std::nullopt;
  Match match;
  match.fact("limit", fmt::format("{:.3g}", *host.cpu_quota)).fact("count", std::to_string(workers));
  match.saw("processors granted", fmt::format("{:.3g}", *host.cpu_quota), "cpu.max");
  match.saw("child processes", std::to_string(workers), fmt::format("/proc/{}", machine.process->pid));
  if (host.cpu_throttled && host.cpu_periods) {
    match.saw("periods in which it was paused", fmt::format("{} of {}", *host.cpu_throttled, *host.cpu_periods),
              "cpu.stat");
  }
  return match;
}

/// Importing torch or numpy narrowed the affinity: two OpenMP runtimes in one environment do that.
bool import_pins(const Machine& machine) {
  const auto& answers = machine.torch.answers;
  return base::number_list(answers.cpus_before_import).size() > 1 &&
         base::number_list(answers.cpus_after_import).size() == 1;
}

std::optional<Match> cpu_affinity_one_core(const Machine& machine) {
  const auto online = machine.host.system.online_cpus;
  const bool pinned = allowed_cpus(machine).size() == 1 && (!machine.process || machine.process->cpus);
  if (online <= 1 || (!pinned && !import_pins(machine))) return std::nullopt;
  Match match;
  match.fact("pid", machine.process ? std::to_string(machine.process->pid) : "$$");
  if (pinned)
    match.saw("allowed processors", fmt::format("number {} alone, of {}", allowed_cpus(machine).front(), online));
  if (import_pins(machine)) {
    match.saw("allowed processors before import torch", machine.torch.answers.cpus_before_import);
    match.saw("allowed processors after import torch", machine.torch.answers.cpus_after_import);
  }
  return match;
}

std::optional<Match> omp_threads_one(const Machine& machine) {
  const auto cpus = static_cast<int>(allowed_cpus(machine).size());
  const bool set = machine.variable("OMP_NUM_THREADS") == "1" && cpus > 1;
  if (!set && !log_shows(machine, "omp-threads-one")) return std::nullopt;
  Match match;
  if (set)
    match.saw("OMP_NUM_THREADS", "1", environment_source(machine)).saw("allowed processors", std::to_string(cpus));
  return match.fact("expected", std::to_string(std::max(1, cpus / local_ranks(machine))));
}

/// The GPUs of the process: those on which NVML lists it, else those whose nodes it has open.
std::vector<const model::PciGpu*> gpus_of_process(const Machine& machine) {
  std::vector<const model::PciGpu*> found;
  const auto used = devices_used_by(machine, machine.process->pid);
  const auto is_used = [&](const model::PciGpu& gpu) {
    return std::ranges::any_of(used, [&](const auto* device) { return device->bdf.is(gpu.bdf); });
  };
  const auto is_open = [&](const model::PciGpu& gpu) {
    return gpu.proc_minor &&
           std::ranges::count(machine.process->gpu_nodes, fmt::format("/dev/nvidia{}", *gpu.proc_minor)) > 0;
  };
  for (const auto* gpu : machine.hardware.nvidia()) {
    if (used.empty() ? is_open(*gpu) : is_used(*gpu)) found.push_back(gpu);
  }
  return found;
}

/// Whether the process may use neither a processor nor, where memory is bound, the memory beside the GPU.
bool is_far(const model::Process& process, const model::PciGpu& gpu) {
  if (!gpu.numa_node || *gpu.numa_node < 0) return false;
  const auto near = base::number_list(gpu.local_cpus.value_or(""));
  const auto allowed = base::number_list(process.cpus.value_or(""));
  const auto is_near = [&](int cpu) { return std::ranges::find(near, cpu) != near.end(); };
  const bool far_cpus = !near.empty() && !allowed.empty() && std::ranges::none_of(allowed, is_near);
  const auto memory = base::number_list(process.memory_nodes.value_or(""));
  const bool far_memory = !memory.empty() && std::ranges::find(memory, *gpu.numa_node) == memory.end();
  return far_cpus || far_memory;
}

std::optional<Match> numa_wrong_socket(const Machine& machine) {
  const auto& process = *machine.process;
  const auto gpus = gpus_of_process(machine);
  const auto far = [&](const auto* gpu) { return is_far(process, *gpu); };
  // A process that uses GPUs of both sockets is far from some of them wherever it runs.
  if (machine.host.numa_nodes < 2 || gpus.empty() || !std::ranges::all_of(gpus, far)) return std::nullopt;
  Match match;
  match.about(machine, gpus.front()->bdf)
      .fact("pid", std::to_string(process.pid))
      .fact("value", std::to_string(*gpus.front()->numa_node));
  for (const auto* gpu : gpus) {
    match.saw("NUMA node of " + machine.gpu_label(gpu->bdf),
              fmt::format("{}, processors {}", *gpu->numa_node, gpu->local_cpus.value_or("?")),
              "/sys/bus/pci/devices/" + gpu->bdf);
  }
  const auto where = fmt::format("/proc/{}/status", process.pid);
  if (process.cpus) match.saw("allowed processors", *process.cpus, where);
  if (process.memory_nodes) match.saw("allowed memory nodes", *process.memory_nodes, where);
  return match;
}

constexpr std::array kRules{
    Rule{"shm-too-small-loader", kNothing, shm_too_small_loader},
    Rule{"shm-too-small-nccl", kNothing, shm_too_small_nccl},
    Rule{"loader-workers-too-many", kProcess, loader_workers_too_many},
    Rule{"cpu-quota-starves-loader", kProcess, cpu_quota_starves_loader},
    Rule{"cpu-affinity-one-core", kNothing, cpu_affinity_one_core},
    Rule{"omp-threads-one", kNothing, omp_threads_one},
    Rule{"numa-wrong-socket", kProcess, numa_wrong_socket},
};

}  // namespace

std::span<const Rule> application_host_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
