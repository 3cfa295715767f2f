// Modes, switches and limits under which CUDA runs, and crashes of kernels.

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

using base::Reading;
using model::Machine;
namespace code = model::cuda_code;

constexpr int kExclusiveThread = 1;
constexpr int kProhibited = 2;
constexpr int kExclusiveProcess = 3;
/// What Linux gave every process before systemd raised it to 8 MiB; still a container's default in places.
constexpr std::uint64_t kSmallMemlock = 64UL * 1024;
/// Far less than one GPU library's compiled kernels: the cache would throw out what it has just stored.
constexpr std::uint64_t kSmallCache = 32UL * 1024 * 1024;
/// What CUDA needs of main memory to start at all.
constexpr std::uint64_t kStartBytes = 512UL * 1024 * 1024;

std::string code_text(int value) {
  return fmt::format("{} {}", value, catalog::cuda_code_name(value));
}

/// A switch such as CUDA_LAUNCH_BLOCKING: on for every number but 0.
bool is_on(const std::optional<std::string>& value) {
  return value && base::number<int>(*value).value_or(0) != 0;
}

/// A compute process other than the training asked about; MPS may hold the GPU in this mode.
const model::GpuProcess* holder(const Machine& machine, const model::NvmlDevice& device) {
  if (!device.processes) return nullptr;
  const auto at = std::ranges::find_if(*device.processes, [&](const auto& process) {
    const bool asked_about = machine.process && machine.process->pid == process.pid;
    return process.kind == "compute" && !asked_about && !process.name.starts_with("nvidia-cuda-mps");
  });
  return at == device.processes->end() ? nullptr : &*at;
}

std::optional<Match> compute_mode_exclusive(const Machine& machine) {
  Match match;
  for (const auto& device : machine.nvml.devices) {
    if (!device.compute_mode.is(kExclusiveProcess) && !device.compute_mode.is(kExclusiveThread)) continue;
    const auto bdf = device.bdf.value_or("");
    const auto* other = holder(machine, device);
    const auto* tried = machine.cuda_by_bdf(bdf);
    if (other == nullptr || (tried != nullptr && tried->context.is(0))) continue;
    match.about(machine, bdf).fact("pid", std::to_string(other->pid));
    match.saw("compute mode", "Exclusive Process", machine.gpu_label(bdf));
    match.saw("process on the GPU", fmt::format("{} {}", other->pid, base::printable(other->name, 60)), "NVML");
    if (tried != nullptr && tried->context) match.saw("creating a context", code_text(*tried->context));
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

std::optional<Match> compute_mode_prohibited(const Machine& machine) {
  Match match;
  for (const auto& device : machine.nvml.devices) {
    if (!device.compute_mode.is(kProhibited)) continue;
    const auto bdf = device.bdf.value_or("");
    match.about(machine, bdf).saw("compute mode", "Prohibited", machine.gpu_label(bdf));
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

/// The first answer of CUDA within the codes of MPS: of cuInit, else of creating a context.
std::optional<int> mps_code(const Machine& machine) {
  const auto is_mps = [](const Reading<int>& answer) {
    return answer && *answer >= code::kMpsConnection && *answer <= code::kMpsLast;
  };
  if (is_mps(machine.cuda.answers.init)) return *machine.cuda.answers.init;
  for (const auto& device : machine.cuda.answers.devices) {
    if (is_mps(device.context)) return *device.context;
  }
  return std::nullopt;
}

std::string mps_folder(const Machine& machine) {
  return machine.variable("CUDA_MPS_PIPE_DIRECTORY").value_or("/tmp/nvidia-mps");
}

std::optional<Match> mps_daemon_gone(const Machine& machine) {
  if (mps_code(machine) != code::kMpsConnection) return std::nullopt;
  Match match;
  match.saw("CUDA", code_text(code::kMpsConnection));
  match.saw("MPS pipe", machine.cuda.mps_control_pipe ? "there" : "not there",
            base::printable(mps_folder(machine), 200) + "/control");
  match.saw("MPS daemon", machine.cuda.mps_daemon ? "running" : "not running", "process list");
  return match;
}

/// The share of the GPU that MPS grants; without MPS in use the variable does nothing.
std::optional<double> mps_percentage(const Machine& machine) {
  const auto value = machine.variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  // Inside a container only the pipe can be seen, the daemon runs outside.
  const bool in_use = machine.cuda.mps_daemon || (machine.cuda.mps_control_pipe && machine.driver.container.inside());
  if (!value || !in_use) return std::nullopt;
  const auto whole = base::number<int>(value->substr(0, value->find('.')));
  return whole && *whole < 100 ? std::optional<double>(*whole) : std::nullopt;
}

std::optional<Match> mps_limits(const Machine& machine) {
  const auto failed = mps_code(machine);
  if (failed == code::kMpsConnection) return std::nullopt;
  Match match;
  if (failed) {
    match.saw("CUDA", code_text(*failed));
    match.severity = model::Severity::error;
  }
  if (mps_percentage(machine)) {
    const auto value = machine.variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").value_or("");
    match.saw("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", base::printable(value, 40), environment_source(machine));
  }
  const bool failed_before = log_shows(machine, "mps-limits");
  if (failed_before) match.severity = model::Severity::error;
  return match.evidence.empty() && !failed_before ? std::nullopt : std::optional(match);
}

std::optional<Match> launch_blocking_on(const Machine& machine) {
  const auto value = machine.variable("CUDA_LAUNCH_BLOCKING");
  if (!is_on(value)) return std::nullopt;
  return Match{}.saw("CUDA_LAUNCH_BLOCKING", base::printable(*value, 40), environment_source(machine));
}

std::string cache_folder(const Machine& machine) {
  const auto path = machine.variable("CUDA_CACHE_PATH");
  return path && !path->empty() ? *path : machine.variable("HOME").value_or("~") + "/.nv/ComputeCache";
}

std::optional<Match> jit_cache_disabled(const Machine& machine) {
  Match match;
  const auto disabled = machine.variable("CUDA_CACHE_DISABLE");
  const auto size = machine.variable("CUDA_CACHE_MAXSIZE");
  const auto bytes = size ? base::number<std::uint64_t>(*size) : std::nullopt;
  if (is_on(disabled)) match.saw("CUDA_CACHE_DISABLE", base::printable(*disabled, 40), environment_source(machine));
  if (bytes && *bytes < kSmallCache)
    match.saw("CUDA_CACHE_MAXSIZE", std::to_string(*bytes), environment_source(machine));
  if (machine.cuda.jit_cache_writable.is(false))
    match.saw("cache of compiled kernels", "cannot be written", cache_folder(machine));
  if (match.evidence.empty()) return std::nullopt;
  match.fact("path", base::printable(cache_folder(machine), 200));
  return match;
}

/// CUDA reserves addresses for main memory and for the memory of every GPU.
std::uint64_t reserved_addresses(const Machine& machine) {
  auto bytes = machine.host.memory_total_bytes;
  for (const auto& device : machine.nvml.devices) bytes += device.memory_total_bytes.value_or(0);
  return bytes;
}

/// A process without a GPU node under a limit that is too small for CUDA: it failed to start it, or never will.
bool limit_keeps_process_off(const Machine& machine) {
  if (!machine.process || !machine.process->imports_torch || !machine.process->descriptors) return false;
  if (!machine.process->gpu_nodes.empty()) return false;
  const auto& limit = machine.process->limit_address_space;
  return limit && *limit < reserved_addresses(machine);
}

/// What PyTorch says when its libraries, heap or CUDA context do not fit under a limit of the address space.
std::string torch_short_of_memory(const Machine& machine) {
  std::vector<std::string> said;
  const auto& answers = machine.torch.answers;
  if (!answers.version && answers.version.error().reason == base::Absent::failed)
    said.push_back(answers.version.error().detail);
  for (const auto& device : answers.devices) said.push_back(device.operation.value_or(""));
  for (const auto& text : said) {
    const auto lower = base::lower(text);
    for (const auto* sign :
         {"out of memory", "cannot allocate memory", "alloc_failed", "not_initialized", "failed to map", "bad_alloc"}) {
      if (base::contains(lower, sign)) return base::printable(text, 200);
    }
  }
  return {};
}

std::optional<Match> address_space_limit(const Machine& machine) {
  const auto& init = machine.cuda.answers.init;
  const bool no_memory = init.is(code::kOutOfMemory);
  const bool refused = no_memory || init.is(code::kNotInitialized);
  const auto torch_error = torch_short_of_memory(machine);
  if (!refused && torch_error.empty() && !limit_keeps_process_off(machine)) return std::nullopt;
  const auto& limit = machine.process ? machine.process->limit_address_space : machine.host.system.limit_address_space;
  Match match;
  if (limit)
    match.saw("limit of the address space", fmt::format("{} bytes", *limit),
              machine.process ? fmt::format("/proc/{}/limits", machine.process->pid) : "ulimit -v");
  const bool strict = machine.host.overcommit.is(2) && machine.host.commit_limit_bytes;
  if (no_memory && strict) {
    match.saw("vm.overcommit_memory", "2", "/proc/sys/vm/overcommit_memory");
    match.saw("CommitLimit", fmt::format("{} MiB", *machine.host.commit_limit_bytes >> 20U), "/proc/meminfo");
  }
  if (no_memory && machine.host.memory_total_bytes != 0 && machine.host.memory_available_bytes < kStartBytes) {
    match.saw("main memory available", fmt::format("{} MiB", machine.host.memory_available_bytes >> 20U),
              "/proc/meminfo");
  }
  if (match.evidence.empty()) return std::nullopt;
  if (refused) match.saw("cuInit", code_text(*init));
  if (!torch_error.empty()) match.saw("PyTorch", torch_error);
  match.fact("limit", limit ? fmt::format("{} kB", *limit / 1024) : "unlimited");
  return match;
}

std::optional<Match> memlock_limit(const Machine& machine) {
  const auto& limit = machine.process ? machine.process->limit_memlock : machine.host.system.limit_memlock;
  if (!limit || *limit > kSmallMemlock) return std::nullopt;
  return Match{}
      .fact("limit", std::to_string(*limit))
      .saw("limit of locked memory", fmt::format("{} bytes", *limit),
           machine.process ? fmt::format("/proc/{}/limits", machine.process->pid) : "ulimit -l");
}

/// A crash in the kernel log may be one of long ago: grave only when the training asked about is the one that crashed.
std::optional<Match> context_poisoned(const Machine& machine) {
  const auto crashes = xids(machine, {13, 31, 43});  // exception, page fault, channel stopped
  const auto is_ours = [&](const Xid& xid) {
    return machine.process && base::contains(xid.line, fmt::format("pid={},", machine.process->pid));
  };
  Match match;
  if (!saw_xids(match, machine, crashes)) return std::nullopt;
  const bool ours = std::ranges::any_of(crashes, is_ours) || log_shows(machine, "context-poisoned");
  if (!ours) match.severity = model::Severity::warning;
  return match;
}

constexpr std::array kRules{
    Rule{"compute-mode-exclusive", kNvml, compute_mode_exclusive},
    Rule{"compute-mode-prohibited", kNvml, compute_mode_prohibited},
    Rule{"mps-daemon-gone", kCuda, mps_daemon_gone},
    Rule{"mps-limits", kNothing, mps_limits},
    Rule{"launch-blocking-on", kNothing, launch_blocking_on},
    Rule{"jit-cache-disabled", kNothing, jit_cache_disabled},
    Rule{"address-space-limit", kNothing, address_space_limit},
    Rule{"memlock-limit", kNothing, memlock_limit},
    Rule{"context-poisoned", kKernelLog, context_poisoned},
};

}  // namespace

std::span<const Rule> cuda_setting_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
