#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

/// The spool: what one process of a training leaves behind in its run folder. A file of fixed size, reserved on the
/// disk before it is mapped (a full disk must never raise SIGBUS in a training), written by the recorder, readable at
/// any time and after `kill -9`. All times are CLOCK_MONOTONIC in nanoseconds, Python's `time.perf_counter_ns`.
///
///   Header | Trend[kTrendBuckets] | Step[kStepRing] | Record[header.record_capacity]
namespace fullwatt::record {

constexpr std::array<char, 8> kMagic{'F', 'W', 'S', 'P', 'O', 'O', 'L', '\n'};
constexpr std::uint32_t kFormatVersion = 1;
constexpr std::size_t kTrendBuckets = 2048;
constexpr std::size_t kStepRing = 32768;
constexpr std::size_t kMainSpoolBytes = 14UL * 1024 * 1024;  ///< a run's files stay under 20 MB
constexpr std::size_t kWorkerSpoolBytes = 128UL * 1024;      ///< a loader worker has no trend and no steps

/// What a process is in the training.
enum class Role : std::uint32_t { trainer = 0, worker = 1, native = 2 };

/// What the host did, as the agent's hooks time it.
enum class Phase : std::uint8_t {
  data = 0,        ///< waiting for the loader's next batch
  backward = 1,    ///< inside Tensor.backward or autograd.backward
  optimizer = 2,   ///< inside Optimizer.step
  save = 3,        ///< inside torch.save
  garbage = 4,     ///< a full collection of Python's garbage collector
  evaluation = 5,  ///< between Module.eval() and Module.train()
  compile = 6,     ///< inside torch.compile's compiler
  agent = 7,       ///< fullwatt itself: opening and closing windows, reading memory and loss
};
constexpr std::size_t kPhases = 8;

/// One optimiser step. The phases are the host time spent in each since the step before.
struct Step {
  std::uint64_t number;   ///< counts from 1; 0 where nothing was written yet
  std::uint64_t end_ns;   ///< when Optimizer.step returned
  std::uint64_t samples;  ///< leading dimension of the input, summed over the forwards since the step before; 0 unknown
  std::uint16_t optimizer;
  std::uint16_t flags;  ///< StepFlag
  std::uint32_t reserved;
  std::array<std::uint64_t, kPhases> phase_ns;
};
static_assert(sizeof(Step) == 96);

enum StepFlag : std::uint16_t {
  kInTimes = 1,    ///< inside a window of kernel times
  kInCauses = 2,   ///< inside a window of API calls and line samples
  kSwitching = 4,  ///< a window was opened or closed in it
  kEvaluated = 8,
  kSaved = 16,
  kCompiled = 32,
  kMeasured = 64,   ///< memory or loss was read in it
  kCeiling = 128,   ///< the loader was replaced by cached batches
  kCounting = 256,  ///< the step in which operations were counted
};

/// Many steps in one: the whole run stays visible however long it is. When all buckets are full, neighbours are merged.
struct Trend {
  std::uint64_t start_ns;
  std::uint64_t end_ns;
  std::uint64_t steps;
  std::uint64_t samples;
  std::uint64_t plain_steps;  ///< without flags
  std::uint64_t plain_sum_ns;
  std::uint64_t plain_min_ns;
  std::uint64_t plain_max_ns;
  std::array<std::uint64_t, kPhases> phase_ns;
};
static_assert(sizeof(Trend) == 128);

/// What a Record holds. The meaning of its fields stands beside each kind.
enum class Kind : std::uint8_t {
  empty = 0,
  text = 1,    ///< id: the text's id from 1; a: its length; the bytes follow in the next slots
  phase = 2,   ///< id: text of the call's site "file:line:function"; flags: Phase; thread; only inside windows
  sample = 3,  ///< id: text of the stack, innermost frame first, "file:line:function" separated by '\n'; start_ns: when
  window = 4,  ///< flags: Window; start_ns, duration_ns; a: steps in it; b: records lost; c: 1 with records of the
               ///< GPU; d: microseconds that opening it took; written when it closes
  kernel =
      5,     ///< id: text of the name; a: correlation; b: stream; c: grid blocks; d: threads of a block; thread: device
  copy = 6,  ///< a: correlation; b: bytes; c: stream; d: copy kind | source kind << 8 | destination kind << 16; thread:
             ///< device
  fill = 7,  ///< a memset; a: correlation; b: bytes; c: stream; thread: device
  call = 8,  ///< a CUDA API call; id: text of its name; a: correlation; b: operating system thread
  wait = 9,  ///< a synchronisation; flags: CUPTI's type; a: correlation; b: stream
  overhead = 10,  ///< CUPTI's own cost; flags: its kind
  memory = 11,  ///< PyTorch's allocator; a: allocated bytes; b: reserved bytes; c: retries; d: cudaMalloc calls so far;
                ///< id: device
  loss = 12,    ///< a: bits of the double; b: step
  fetch = 13,   ///< one batch in a worker or in the main process; id: worker + 1 or 0; a: CPU ns; b: collate ns; c:
                ///< samples; d: KiB read from the disk
  mark = 14,    ///< id: text; something that happened once
  trouble = 15,  ///< id: text; what the agent or the recorder could not do, and why
};

struct Record {
  Kind kind;  ///< written last: a slot whose kind is `empty` was never finished
  std::uint8_t flags;
  std::uint16_t thread;
  std::uint32_t id;
  std::uint64_t start_ns;
  std::uint64_t duration_ns;
  std::uint64_t a;
  std::uint64_t b;
  std::uint32_t c;
  std::uint32_t d;
};
static_assert(sizeof(Record) == 48);

enum class Window : std::uint8_t {
  times = 1,   ///< kernels and copies only: used for times
  causes = 2,  ///< API calls, waits and line samples too: used for causes and lines, never for times
};

/// How the recorder stands.
enum class State : std::uint32_t { watching = 0, in_times = 1, in_causes = 2, off = 3, closed = 4 };

struct Header {
  std::array<char, 8> magic;
  std::uint32_t version;
  Role role;
  std::uint32_t pid;
  std::int32_t rank;
  std::uint64_t opened_ns;
  std::uint64_t opened_wall_ns;  ///< CLOCK_REALTIME at the same moment
  std::uint64_t file_bytes;
  std::uint64_t trend_capacity;
  std::uint64_t step_capacity;
  std::uint64_t record_capacity;
  std::atomic<std::uint64_t> trend_count;
  std::atomic<std::uint64_t> trend_steps_per_bucket;
  std::atomic<std::uint64_t> step_count;   ///< the newest is at (step_count - 1) % step_capacity
  std::atomic<std::uint64_t> record_next;  ///< slots handed out; may pass the capacity
  std::atomic<std::uint64_t> records_dropped;
  std::atomic<std::uint64_t> last_step_ns;
  std::atomic<std::uint64_t> samples_total;
  std::uint64_t unused;                     ///< keeps what stands behind it where it was in recordings
  std::atomic<std::uint64_t> hook_cost_ns;  ///< of one step's hooks, measured at the start by calling them in a loop
  std::atomic<State> state;
  std::atomic<std::uint32_t> thread;   ///< the operating system's id of the thread that trains
  std::atomic<std::uint32_t> windows;  ///< closed so far
};
constexpr std::size_t kHeaderBytes = 4096;
static_assert(sizeof(Header) <= kHeaderBytes);

}  // namespace fullwatt::record
