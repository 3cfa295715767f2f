#include "fullwatt/vendor/cupti/cupti.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fullwatt/vendor/cupti/abi.hpp"

namespace fullwatt::vendor::cupti {
namespace {

/// NVIDIA recommends 1 to 10 MB; most windows fit in one.
constexpr std::size_t kBufferBytes = 2UL * 1024 * 1024;
constexpr int kClockReadings = 16;

/// CUPTI's functions; those that older versions lack may be null.
struct Functions {
  abi::Result (*subscribe)(abi::Subscriber*, abi::Callback*, void*) = nullptr;
  abi::Result (*unsubscribe)(abi::Subscriber) = nullptr;
  abi::Result (*enable_domain)(std::uint32_t, abi::Subscriber, std::uint32_t) = nullptr;
  abi::Result (*register_callbacks)(abi::BufferRequested*, abi::BufferCompleted*) = nullptr;
  abi::Result (*enable)(std::uint32_t) = nullptr;
  abi::Result (*disable)(std::uint32_t) = nullptr;
  abi::Result (*flush)(std::uint32_t) = nullptr;
  abi::Result (*next_record)(std::uint8_t*, std::size_t, std::uint8_t**) = nullptr;
  abi::Result (*finalize)() = nullptr;
  abi::Result (*result_string)(abi::Result, const char**) = nullptr;
  abi::Result (*dropped_records)(void*, std::uint32_t, std::size_t*) = nullptr;
  abi::Result (*callback_name)(std::uint32_t, std::uint32_t, const char**) = nullptr;
  abi::Result (*timestamp)(std::uint64_t*) = nullptr;
  abi::Result (*enable_callback)(std::uint32_t, abi::Subscriber, std::uint32_t, std::uint32_t) = nullptr;

  bool complete() const {
    return subscribe != nullptr && enable_domain != nullptr && enable_callback != nullptr &&
           register_callbacks != nullptr && enable != nullptr && disable != nullptr && flush != nullptr &&
           next_record != nullptr && finalize != nullptr;
  }
};

std::uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

/// One API call, as the callbacks at its beginning and its end saw it.
struct Call {
  std::uint64_t start_ns;
  std::uint64_t end_ns;
  std::uint32_t domain;
  std::uint32_t id;
  std::uint32_t correlation;
  std::uint32_t thread;
};

/// The calls of one window, written by all threads that make some. CUPTI could record them itself, but then takes time
/// in every call of the API, also in those that it is told to leave out (CUPTI 13.0: half of a step of many launches).
class Calls {
 public:
  void begin() {
    if (!calls_) calls_ = std::make_unique_for_overwrite<Call[]>(kMost);  // kept: a thread may be about to write
    count_ = 0;
    window_.fetch_add(1);
  }
  void at(std::uint32_t domain, std::uint32_t id, const abi::CallbackHead& head) {
    thread_local Open open;
    if (head.site == abi::kSiteEnter) {
      // A call that a call makes is a part of it.
      if (open.window != window_) open = {window_, {monotonic_ns(), 0, domain, id, head.correlation, thread()}};
    } else if (open.window == window_ && open.call.domain == domain && open.call.id == id &&
               open.call.correlation == head.correlation) {
      open.window = 0;
      open.call.end_ns = monotonic_ns();
      const auto place = count_.fetch_add(1, std::memory_order_relaxed);
      if (place < kMost) calls_[place] = open.call;
    }
  }
  std::span<const Call> all() const { return {calls_.get(), std::min<std::size_t>(count_, kMost)}; }
  std::uint64_t lost() const { return count_ > kMost ? count_ - kMost : 0; }

 private:
  static constexpr std::size_t kMost = 1U << 18U;
  struct Open {
    std::uint64_t window = 0;
    Call call{};
  };

  static std::uint32_t thread() {
    thread_local const auto kNumber = static_cast<std::uint32_t>(::syscall(SYS_gettid));
    return kNumber;
  }

  std::unique_ptr<Call[]> calls_;
  std::atomic<std::uint64_t> count_ = 0;
  std::atomic<std::uint64_t> window_ = 0;
};

/// The process has one CUPTI, and its callbacks carry no pointer of ours.
struct Seat {
  std::mutex mutex;     ///< of start and stop
  std::mutex delivery;  ///< the sink is called by one thread at a time
  Functions functions;
  abi::Subscriber subscriber = nullptr;
  Sink sink = nullptr;
  bool with_calls = false;
  Calls calls;
  std::uint64_t dropped = 0;
  std::uint64_t behind_ns = 0;  ///< of our clock, CUPTI's; unsigned, so that it wraps where it is ahead
};

Seat& seat() {
  static auto* one = new Seat;  // never destroyed: CUPTI's own threads may outlive main
  return *one;
}

thread_local bool finalize_now = false;

void* loaded(const char* name) {
  return ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
}

/// The library that PyTorch has loaded already, else the one the loader finds, else a toolkit's.
void* open_library() {
  constexpr std::array kNames{"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so.11.7",
                              "libcupti.so"};
  if (const char* named = std::getenv("FULLWATT_CUPTI"); named != nullptr && *named != '\0')
    return ::dlopen(named, RTLD_LAZY | RTLD_LOCAL);
  for (const char* name : kNames) {
    if (void* library = loaded(name)) return library;
  }
  for (const char* name : kNames) {
    if (void* library = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL)) return library;
  }
  return ::dlopen("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so", RTLD_LAZY | RTLD_LOCAL);
}

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
}

base::Result<Functions> load() {
  void* library = open_library();
  if (library == nullptr) {
    return base::fail(base::Error::Kind::not_found, "libcupti is not found",
                      "Install it beside PyTorch (pip install nvidia-cuda-cupti), or set FULLWATT_CUPTI to its path.");
  }
  Functions f;
  find(library, "cuptiSubscribe", f.subscribe);
  find(library, "cuptiUnsubscribe", f.unsubscribe);
  find(library, "cuptiEnableDomain", f.enable_domain);
  find(library, "cuptiActivityRegisterCallbacks", f.register_callbacks);
  find(library, "cuptiActivityEnable", f.enable);
  find(library, "cuptiActivityDisable", f.disable);
  find(library, "cuptiActivityFlushAll", f.flush);
  find(library, "cuptiActivityGetNextRecord", f.next_record);
  find(library, "cuptiFinalize", f.finalize);
  find(library, "cuptiGetResultString", f.result_string);
  find(library, "cuptiActivityGetNumDroppedRecords", f.dropped_records);
  find(library, "cuptiGetCallbackName", f.callback_name);
  find(library, "cuptiGetTimestamp", f.timestamp);
  find(library, "cuptiEnableCallback", f.enable_callback);
  if (!f.complete() || f.timestamp == nullptr) {
    return base::fail(base::Error::Kind::unavailable,
                      "this CUPTI is too old to share our clock (CUDA 11.6 and later can)",
                      "Use a PyTorch built for CUDA 11.8 or later.");
  }
  return f;
}

std::string reason(const Functions& f, abi::Result code) {
  if (code == abi::kMultipleSubscribers)
    return "another tool in this process holds CUPTI (a profiler such as Nsight Systems, Kineto or DCGM's)";
  const char* text = nullptr;
  if (f.result_string != nullptr && f.result_string(code, &text) == abi::kSuccess && text != nullptr) return text;
  return "CUPTI answered code " + std::to_string(code);
}

void buffer_requested(std::uint8_t** buffer, std::size_t* bytes, std::size_t* max_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(abi::kAlignment, kBufferBytes));
  *bytes = *buffer != nullptr ? kBufferBytes : 0;
  *max_records = 0;
}

template <class Head>
Activity timed(Activity::Kind kind, const Head& head) {
  Activity activity;
  activity.kind = kind;
  const auto behind = seat().behind_ns;
  activity.start_ns = head.start != 0 ? head.start + behind : 0;
  activity.end_ns = head.end != 0 ? head.end + behind : 0;
  activity.correlation = head.correlation;
  return activity;
}

Activity kernel(const abi::KernelHead& head) {
  auto activity = timed(Activity::Kind::kernel, head);
  activity.stream = head.stream;
  activity.device = head.device;
  if (head.name != nullptr) activity.name = head.name;
  activity.blocks = static_cast<std::uint32_t>(head.grid[0]) * static_cast<std::uint32_t>(head.grid[1]) *
                    static_cast<std::uint32_t>(head.grid[2]);
  activity.threads = static_cast<std::uint32_t>(head.block[0] * head.block[1] * head.block[2]);
  return activity;
}

Activity copy(const abi::CopyHead& head) {
  auto activity = timed(Activity::Kind::copy, head);
  activity.stream = head.stream;
  activity.device = head.device;
  activity.bytes = head.bytes;
  activity.copy_kind = head.copy_kind;
  activity.source_kind = head.source_kind;
  activity.destination_kind = head.destination_kind;
  return activity;
}

Activity fill(const abi::FillHead& head) {
  auto activity = timed(Activity::Kind::fill, head);
  activity.stream = head.stream;
  activity.device = head.device;
  activity.bytes = head.bytes;
  return activity;
}

Activity call(const Functions& f, const Call& seen) {
  Activity activity;
  activity.kind = Activity::Kind::call;
  activity.start_ns = seen.start_ns;
  activity.end_ns = seen.end_ns;
  activity.correlation = seen.correlation;
  activity.thread = seen.thread;
  const char* name = nullptr;
  if (f.callback_name != nullptr && f.callback_name(seen.domain, seen.id, &name) == abi::kSuccess && name != nullptr)
    activity.name = name;
  return activity;
}

std::optional<Activity> translate(const std::uint8_t* record) {
  switch (*reinterpret_cast<const std::uint32_t*>(record)) {
    case abi::kKindConcurrentKernel:
      return kernel(*reinterpret_cast<const abi::KernelHead*>(record));
    case abi::kKindCopy:
      return copy(*reinterpret_cast<const abi::CopyHead*>(record));
    case abi::kKindFill:
      return fill(*reinterpret_cast<const abi::FillHead*>(record));
    default:
      return std::nullopt;
  }
}

void buffer_completed(void* context, std::uint32_t stream, std::uint8_t* buffer, std::size_t, std::size_t valid_bytes) {
  auto& own = seat();
  {
    const std::lock_guard lock(own.delivery);
    std::uint8_t* record = nullptr;
    while (own.sink != nullptr && own.functions.next_record(buffer, valid_bytes, &record) == abi::kSuccess) {
      const auto activity = translate(record);
      // Work that was not finished when the window closed has no end.
      if (activity && activity->start_ns != 0 && activity->end_ns >= activity->start_ns) own.sink(*activity);
    }
    std::size_t lost = 0;
    if (own.functions.dropped_records != nullptr &&
        own.functions.dropped_records(context, stream, &lost) == abi::kSuccess)
      own.dropped += lost;
  }
  std::free(buffer);
}

/// Notes calls. And CUPTI may be taken out only at the exit of one (kineto#686: elsewhere it races and crashes).
void at_api_call(void*, std::uint32_t domain, std::uint32_t id, const void* data) {
  const auto& head = *static_cast<const abi::CallbackHead*>(data);
  if (!finalize_now) {
    seat().calls.at(domain, id, head);
  } else if (head.site == abi::kSiteExit) {
    finalize_now = false;
    seat().functions.finalize();
  }
}

/// Makes an API call of no effect, at whose exit CUPTI leaves.
void leave(Seat& own) {
  using GetCurrent = int(void**);
  void* driver = loaded("libcuda.so.1");
  auto* get_current = driver != nullptr ? reinterpret_cast<GetCurrent*>(::dlsym(driver, "cuCtxGetCurrent")) : nullptr;
  if (get_current == nullptr || own.functions.enable_domain(1, own.subscriber, abi::kDomainDriver) != abi::kSuccess) {
    own.functions.unsubscribe(own.subscriber);
    return;
  }
  finalize_now = true;
  void* context = nullptr;
  get_current(&context);
  if (!finalize_now) return;
  finalize_now = false;
  own.functions.unsubscribe(own.subscriber);
}

/// Callbacks of the calls that matter, on or off. Numbers that a version does not know are passed over.
void listen(const Seat& own, bool yes) {
  const auto turn = [&](std::uint32_t domain, std::span<const std::uint32_t> ids) {
    for (const auto id : ids) own.functions.enable_callback(yes ? 1 : 0, own.subscriber, domain, id);
  };
  turn(abi::kDomainDriver, abi::kCalls);
  turn(abi::kDomainRuntime, abi::kRuntimeCalls);
}

base::Result<void> enable_kinds(const Functions& f) {
  for (const auto kind : {abi::kKindConcurrentKernel, abi::kKindCopy, abi::kKindFill}) {
    if (const auto code = f.enable(kind); code != abi::kSuccess)
      return base::fail(base::Error::Kind::unavailable, reason(f, code));
  }
  return {};
}

void disable_kinds(const Functions& f) {
  for (const auto kind : {abi::kKindConcurrentKernel, abi::kKindCopy, abi::kKindFill}) f.disable(kind);
}

/// How far CUPTI's clock is behind ours, by the closest of some readings of both. To give it our clock instead would
/// cost a call in every launch.
std::optional<std::uint64_t> time_behind(const Functions& f) {
  std::optional<std::uint64_t> behind;
  std::uint64_t closest = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < kClockReadings; ++i) {
    std::uint64_t theirs = 0;
    const auto before = monotonic_ns();
    if (f.timestamp(&theirs) != abi::kSuccess) continue;
    const auto took = monotonic_ns() - before;
    if (took >= closest) continue;
    closest = took;
    behind = before + took / 2 - theirs;
  }
  return behind;
}

base::Result<void> begin_records(Seat& own) {
  const auto behind = time_behind(own.functions);
  if (!behind) return base::fail(base::Error::Kind::unavailable, "CUPTI does not tell the time");
  own.behind_ns = *behind;
  own.functions.register_callbacks(buffer_requested, buffer_completed);
  return enable_kinds(own.functions);
}

/// The calls of the window that is over, to the sink.
void deliver_calls(Seat& own) {
  const std::lock_guard lock(own.delivery);
  for (const auto& seen : own.calls.all()) own.sink(call(own.functions, seen));
  own.dropped += own.calls.lost();
}

}  // namespace

bool cuda_in_use() {
  using GetCount = int(int*);
  using GetState = int(int, unsigned*, int*);
  void* driver = loaded("libcuda.so.1");
  if (driver == nullptr) return false;
  auto* get_count = reinterpret_cast<GetCount*>(::dlsym(driver, "cuDeviceGetCount"));
  auto* get_state = reinterpret_cast<GetState*>(::dlsym(driver, "cuDevicePrimaryCtxGetState"));
  int count = 0;
  if (get_count == nullptr || get_state == nullptr || get_count(&count) != 0) return false;
  for (int device = 0; device < count; ++device) {
    unsigned flags = 0;
    int active = 0;
    if (get_state(device, &flags, &active) == 0 && active != 0) return true;
  }
  return false;
}

void drain() {
  using Synchronize = int();
  void* driver = loaded("libcuda.so.1");
  auto* synchronize = driver != nullptr ? reinterpret_cast<Synchronize*>(::dlsym(driver, "cuCtxSynchronize")) : nullptr;
  if (synchronize != nullptr) synchronize();
}

base::Result<void> start(bool calls, Sink sink) {
  auto& own = seat();
  const std::lock_guard lock(own.mutex);
  if (own.subscriber != nullptr) return base::fail(base::Error::Kind::unavailable, "a window is open already");
  auto functions = load();
  if (!functions) return std::unexpected(functions.error());
  own.functions = *functions;
  const auto& f = own.functions;
  if (const auto code = f.subscribe(&own.subscriber, at_api_call, nullptr); code != abi::kSuccess) {
    own.subscriber = nullptr;
    return base::fail(base::Error::Kind::unavailable, reason(f, code),
                      "Run without the other profiler to get kernel times.");
  }
  own.sink = sink;
  own.with_calls = calls;
  own.dropped = 0;
  if (auto enabled = begin_records(own); !enabled) {
    leave(own);
    own.subscriber = nullptr;
    return enabled;
  }
  own.calls.begin();
  if (calls) listen(own, true);
  return {};
}

void stop() {
  auto& own = seat();
  const std::lock_guard lock(own.mutex);
  if (own.subscriber == nullptr) return;
  drain();
  if (own.with_calls) listen(own, false);
  disable_kinds(own.functions);
  own.functions.flush(abi::kFlushForced);
  deliver_calls(own);
  leave(own);
  own.subscriber = nullptr;
  const std::lock_guard delivered(own.delivery);
  own.sink = nullptr;
}

std::uint64_t dropped() {
  auto& own = seat();
  const std::lock_guard lock(own.delivery);
  return own.dropped;
}

}  // namespace fullwatt::vendor::cupti
