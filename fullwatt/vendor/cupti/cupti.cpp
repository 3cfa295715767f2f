#include "fullwatt/vendor/cupti/cupti.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <optional>
#include <span>

#include <dlfcn.h>

#include "fullwatt/vendor/cupti/abi.hpp"

namespace fullwatt::vendor::cupti {
namespace {

/// NVIDIA recommends 1 to 10 MB; most windows fit in one.
constexpr std::size_t kBufferBytes = 2UL * 1024 * 1024;

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
  abi::Result (*timestamp)(abi::Timestamp*) = nullptr;
  abi::Result (*thread_id_type)(std::uint32_t) = nullptr;
  abi::Result (*enable_driver_call)(std::uint32_t, std::uint8_t) = nullptr;
  abi::Result (*enable_runtime_call)(std::uint32_t, std::uint8_t) = nullptr;

  bool complete() const {
    return subscribe != nullptr && enable_domain != nullptr && register_callbacks != nullptr && enable != nullptr &&
           disable != nullptr && flush != nullptr && next_record != nullptr && finalize != nullptr;
  }
};

/// The process has one CUPTI, and its callbacks carry no pointer of ours.
struct Seat {
  std::mutex mutex;     ///< of start and stop
  std::mutex delivery;  ///< the sink is called by one thread at a time
  Functions functions;
  abi::Subscriber subscriber = nullptr;
  Sink sink = nullptr;
  bool calls = false;
  std::uint64_t dropped = 0;
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
  find(library, "cuptiActivityRegisterTimestampCallback", f.timestamp);
  find(library, "cuptiSetThreadIdType", f.thread_id_type);
  find(library, "cuptiActivityEnableDriverApi", f.enable_driver_call);
  find(library, "cuptiActivityEnableRuntimeApi", f.enable_runtime_call);
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

std::uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
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
  activity.start_ns = head.start;
  activity.end_ns = head.end;
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

Activity call(const Functions& f, const abi::CallHead& head) {
  auto activity = timed(Activity::Kind::call, head);
  activity.thread = head.thread;
  activity.driver = head.kind == abi::kKindDriver;
  const char* name = nullptr;
  const auto domain = activity.driver ? abi::kDomainDriver : abi::kDomainRuntime;
  if (f.callback_name != nullptr && f.callback_name(domain, head.callback_id, &name) == abi::kSuccess &&
      name != nullptr)
    activity.name = name;
  return activity;
}

bool matters(const abi::CallHead& head) {
  return head.kind == abi::kKindDriver ? std::ranges::binary_search(abi::kDriverCalls, head.callback_id)
                                       : std::ranges::binary_search(abi::kRuntimeCalls, head.callback_id);
}

std::optional<Activity> translate(const Functions& f, const std::uint8_t* record) {
  switch (*reinterpret_cast<const std::uint32_t*>(record)) {
    case abi::kKindConcurrentKernel:
      return kernel(*reinterpret_cast<const abi::KernelHead*>(record));
    case abi::kKindCopy:
      return copy(*reinterpret_cast<const abi::CopyHead*>(record));
    case abi::kKindFill:
      return fill(*reinterpret_cast<const abi::FillHead*>(record));
    case abi::kKindRuntime:
    case abi::kKindDriver: {
      const auto& head = *reinterpret_cast<const abi::CallHead*>(record);
      if (!matters(head)) return std::nullopt;
      return call(f, head);
    }
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
      const auto activity = translate(own.functions, record);
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

/// Waits until the GPU has done all it was given, so that a window holds whole steps: neither the tail of the one
/// before nor half of its own last one. CUPTI itself waits like this when it leaves.
void drain() {
  using Synchronize = int();
  void* driver = loaded("libcuda.so.1");
  auto* synchronize = driver != nullptr ? reinterpret_cast<Synchronize*>(::dlsym(driver, "cuCtxSynchronize")) : nullptr;
  if (synchronize != nullptr) synchronize();
}

/// CUPTI may be taken out only at the exit of an API call (kineto#686: elsewhere it races and crashes).
void at_api_call(void*, std::uint32_t, std::uint32_t, const void* data) {
  if (!finalize_now || static_cast<const abi::CallbackHead*>(data)->site != abi::kSiteExit) return;
  finalize_now = false;
  seat().functions.finalize();
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

/// All calls of an API are switched on, then all but a few off again. (Switching on only the few, as the documentation
/// has it, recorded nothing with CUPTI 13.0.) Old versions can only record all; `translate` drops what does not matter.
void record_calls(const Functions& f, std::uint32_t kind, std::uint32_t domain, std::span<const std::uint32_t> wanted,
                  abi::Result (*choose)(std::uint32_t, std::uint8_t)) {
  f.enable(kind);
  if (choose == nullptr || f.callback_name == nullptr) return;
  const char* name = nullptr;
  for (std::uint32_t id = 1; f.callback_name(domain, id, &name) == abi::kSuccess && id < abi::kMostCalls; ++id) {
    if (!std::ranges::binary_search(wanted, id)) choose(id, 0);
  }
}

base::Result<void> enable_kinds(const Functions& f, bool calls) {
  for (const auto kind : {abi::kKindConcurrentKernel, abi::kKindCopy, abi::kKindFill}) {
    if (const auto code = f.enable(kind); code != abi::kSuccess)
      return base::fail(base::Error::Kind::unavailable, reason(f, code));
  }
  if (!calls) return {};
  record_calls(f, abi::kKindRuntime, abi::kDomainRuntime, abi::kRuntimeCalls, f.enable_runtime_call);
  record_calls(f, abi::kKindDriver, abi::kDomainDriver, abi::kDriverCalls, f.enable_driver_call);
  return {};
}

void disable_kinds(const Functions& f, bool calls) {
  for (const auto kind : {abi::kKindConcurrentKernel, abi::kKindCopy, abi::kKindFill}) f.disable(kind);
  if (!calls) return;
  f.disable(abi::kKindRuntime);
  f.disable(abi::kKindDriver);
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
  own.calls = calls;
  own.dropped = 0;
  if (f.thread_id_type != nullptr) f.thread_id_type(abi::kSystemThreadId);
  f.timestamp(monotonic_ns);
  f.register_callbacks(buffer_requested, buffer_completed);
  drain();
  if (auto enabled = enable_kinds(f, calls); !enabled) {
    leave(own);
    own.subscriber = nullptr;
    return enabled;
  }
  return {};
}

void stop() {
  auto& own = seat();
  const std::lock_guard lock(own.mutex);
  if (own.subscriber == nullptr) return;
  drain();
  disable_kinds(own.functions, own.calls);
  own.functions.flush(abi::kFlushForced);
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
