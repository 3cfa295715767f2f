#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/base/reading.hpp"
#include "fullwatt/model/machine.hpp"

/// A recorded training: everything that its run folder holds, as plain data. `explain` needs nothing else.
namespace fullwatt::model {

/// A place in somebody's code.
struct Site {
  std::string file;
  int line = 0;
  std::string function;

  bool known() const { return !file.empty(); }
  auto operator<=>(const Site&) const = default;
  static void fields(auto& self, auto&& visit) {
    visit("file", self.file);
    visit("line", self.line);
    visit("function", self.function);
  }
};

/// What the host did, as the agent's hooks time it. The order is that of the spool.
enum class Phase { data, backward, optimizer, save, garbage, evaluation, compile, agent };
constexpr std::size_t kPhaseCount = 8;
std::string_view to_string(Phase phase);

/// One call of Optimizer.step and the host time of each phase since the call before.
struct OptimizerStep {
  std::uint64_t number = 0;
  std::uint64_t end_ns = 0;
  std::uint64_t samples = 0;
  int optimizer = 0;
  unsigned flags = 0;  ///< record::StepFlag
  std::array<std::uint64_t, kPhaseCount> phase_ns{};

  bool plain() const { return flags == 0; }
};

/// Many steps in one, for the course of the whole run.
struct TrendBucket {
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  std::uint64_t steps = 0;
  std::uint64_t samples = 0;
  std::uint64_t plain_steps = 0;
  std::uint64_t plain_sum_ns = 0;
  std::uint64_t plain_min_ns = 0;
  std::uint64_t plain_max_ns = 0;
  std::array<std::uint64_t, kPhaseCount> phase_ns{};
};

/// Something on the GPU.
struct GpuActivity {
  enum class Kind { kernel, copy, fill };
  Kind kind = Kind::kernel;
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  std::uint32_t name = 0;  ///< index in TrainingProcess::texts, kernels only
  std::uint64_t correlation = 0;
  std::uint64_t stream = 0;
  std::uint64_t bytes = 0;
  int device = 0;
  std::uint8_t copy_kind = 0;    ///< CUPTI: 1 host to device, 2 device to host, 8 device to device, 10 peer to peer
  std::uint8_t source_kind = 0;  ///< CUPTI: 1 pageable, 2 pinned, 3 device, 5 managed
  std::uint8_t destination_kind = 0;
  std::uint32_t blocks = 0;
  std::uint32_t threads = 0;
};

/// A call into CUDA.
struct ApiCall {
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  std::uint32_t name = 0;  ///< index in TrainingProcess::texts, such as cuLaunchKernel
  std::uint64_t correlation = 0;
  std::uint64_t thread = 0;
};

/// A phase inside a window, with its place in the user's code.
struct PhaseSpan {
  Phase phase = Phase::data;
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  std::uint32_t site = 0;  ///< index in TrainingProcess::texts, "file:line:function"; 0 unknown
};

/// Where the training's main thread was at one moment.
struct LineSample {
  std::uint64_t at_ns = 0;
  std::uint32_t stack = 0;  ///< index in TrainingProcess::stacks
};

/// One batch made by a loader worker, or by the main process where there are no workers.
struct Fetch {
  int worker = -1;
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  std::uint64_t cpu_ns = 0;
  std::uint64_t collate_ns = 0;
  std::uint32_t samples = 0;
  std::uint32_t read_kib = 0;
};

struct MemorySample {
  std::uint64_t at_ns = 0;
  int device = 0;
  std::uint64_t allocated_bytes = 0;
  std::uint64_t reserved_bytes = 0;
  std::uint32_t retries = 0;
  std::uint32_t device_allocations = 0;
};

struct LossSample {
  std::uint64_t at_ns = 0;
  std::uint64_t step = 0;
  double value = 0;
};

/// A stretch of steps that was recorded closely.
struct RecordedWindow {
  enum class Mode { times, causes };
  Mode mode = Mode::times;
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  std::uint64_t steps = 0;
  std::uint64_t lost = 0;  ///< records that found no room
};

/// A text with its time: what happened once, or what went wrong in the agent or the recorder.
struct Remark {
  std::uint64_t at_ns = 0;
  std::string text;
};

/// What the agent said in its facts file, by kind; docs/run-folder.md lists the kinds and their fields.
struct Fact {
  std::string kind;
  std::string json;  ///< the whole line, an object
};

/// One process of the training: its spool and its facts.
struct TrainingProcess {
  enum class Role { trainer, worker, native };
  int pid = 0;
  Role role = Role::trainer;
  int rank = -1;
  int thread = 0;  ///< the operating system's id of the thread that trains
  std::uint64_t opened_ns = 0;
  std::uint64_t opened_wall_ns = 0;
  bool closed = false;  ///< it ended in order
  std::uint64_t step_count = 0;
  std::uint64_t samples_total = 0;
  double hook_cost_ns = 0;  ///< the agent's own cost of a steady step, measured at the start
  std::uint64_t records_dropped = 0;

  std::vector<std::string> texts{std::string()};  ///< by id; 0 is empty
  std::vector<std::vector<Site>> stacks;          ///< innermost frame first
  std::vector<OptimizerStep> steps;               ///< the newest ones, in order
  std::vector<TrendBucket> trend;
  std::vector<RecordedWindow> windows;
  std::vector<GpuActivity> activities;  ///< by start
  std::vector<ApiCall> calls;           ///< by start
  std::vector<PhaseSpan> phases;        ///< by start
  std::vector<LineSample> samples;      ///< by time
  std::vector<Fetch> fetches;
  std::vector<MemorySample> memory;
  std::vector<LossSample> losses;
  std::vector<Remark> marks;
  std::vector<Remark> troubles;
  std::vector<Fact> facts;

  const std::string& text(std::uint32_t id) const { return id < texts.size() ? texts[id] : texts.front(); }
};
std::string_view to_string(TrainingProcess::Role role);

/// One look at a GPU while the training ran.
struct GpuSample {
  std::uint64_t at_ns = 0;
  int gpu = 0;  ///< index in RunInfo::gpus
  base::Reading<double> power_w;
  base::Reading<int> utilization_percent;
  base::Reading<int> memory_utilization_percent;
  base::Reading<std::uint64_t> memory_used_bytes;
  base::Reading<int> sm_clock_mhz;
  base::Reading<int> memory_clock_mhz;
  base::Reading<int> temperature_c;
  base::Reading<std::uint64_t> throttle_reasons;
  base::Reading<std::uint64_t> energy_mj;
  base::Reading<std::uint64_t> pcie_rx_kib_s;
  base::Reading<std::uint64_t> pcie_tx_kib_s;
};

/// What a GPU drew at a moment, of those that its driver keeps.
struct PowerSample {
  std::uint64_t at_ns = 0;
  int gpu = 0;  ///< index in RunInfo::gpus
  double watts = 0;
};

/// One look at the host while the training ran. Shares are of one CPU: 2.5 means two and a half CPUs.
struct HostSample {
  std::uint64_t at_ns = 0;
  double cpus_busy = 0;      ///< of the whole machine
  double cpus_training = 0;  ///< of the training's processes
  double iowait = 0;
  double cpu_pressure = 0;  ///< /proc/pressure/cpu some, share of the interval; 0 where not offered
  double throttled = 0;     ///< share of the interval in which the cgroup's quota stopped it
  std::uint64_t memory_available_bytes = 0;
  std::uint64_t swap_in_bytes = 0;  ///< since the sample before
  std::uint64_t disk_read_bytes = 0;
  std::uint64_t training_rss_bytes = 0;
  double stolen = 0;                        ///< CPUs that the hypervisor gave to others; counted as busy too
  std::uint64_t training_shared_bytes = 0;  ///< of the resident ones: mapped files and memory that processes share
};

/// A GPU of the run, as the sampler saw it.
struct RunGpu {
  int nvml_index = 0;
  std::string uuid;
  std::string name;
  std::string bdf;
  bool used = false;  ///< a process of the training computed on it

  static void fields(auto& self, auto&& visit) {
    visit("nvml_index", self.nvml_index);
    visit("uuid", self.uuid);
    visit("name", self.name);
    visit("bdf", self.bdf);
    visit("used", self.used);
  }
};

/// What `fullwatt run` itself knows: run.json.
struct RunInfo {
  static constexpr int kSchemaVersion = 1;

  std::string id;
  std::vector<std::string> command;
  std::string folder;   ///< working directory of the command
  std::string version;  ///< of fullwatt
  std::string started;  ///< UTC, 2026-11-15T16:20:00Z
  double seconds = 0;
  std::optional<int> exit_code;
  std::optional<int> signal;
  bool interrupted = false;
  std::string git_commit;
  bool git_dirty = false;
  std::string gpu_asked;  ///< UUID that --gpu chose; empty without it
  std::string sampler;    ///< why there are no GPU samples; empty when there are
  std::vector<RunGpu> gpus;
  std::optional<double> price_per_kwh;
  std::string currency;
  std::string hang;  ///< the hang report's file; empty when there was none

  static void fields(auto& self, auto&& visit) {
    visit("id", self.id);
    visit("command", self.command);
    visit("folder", self.folder);
    visit("version", self.version);
    visit("started", self.started);
    visit("seconds", self.seconds);
    visit("exit_code", self.exit_code);
    visit("signal", self.signal);
    visit("interrupted", self.interrupted);
    visit("git_commit", self.git_commit);
    visit("git_dirty", self.git_dirty);
    visit("gpu_asked", self.gpu_asked);
    visit("sampler", self.sampler);
    visit("gpus", self.gpus);
    visit("price_per_kwh", self.price_per_kwh);
    visit("currency", self.currency);
    visit("hang", self.hang);
  }
};

struct Run {
  RunInfo info;
  std::optional<Machine> machine;
  std::vector<TrainingProcess> processes;  ///< trainers by rank first, then workers
  std::vector<GpuSample> gpu_samples;
  std::vector<PowerSample> power_samples;  ///< of a trial only
  std::vector<HostSample> host_samples;
  std::map<std::string, std::string> sources;       ///< the user's files, by path, as they were
  std::map<std::string, std::string> config_files;  ///< what the program opened, by path
  std::string source_facts;  ///< JSON of python/fullwatt/source_facts.py; empty when it did not run
};

}  // namespace fullwatt::model
