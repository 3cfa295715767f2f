// A libcupti that a test steers: it gives the seat or refuses it, delivers kernels and calls when flushed, and counts
// what is still on. A second library built from the same file, with FAKE_DRIVER, is a libcuda.so.1 with one active
// context.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>

#include "fullwatt/vendor/cupti/abi.hpp"

namespace abi = fullwatt::vendor::cupti::abi;

#if defined(FAKE_DRIVER)

namespace {
void (*at_exit)() = nullptr;
}

extern "C" {
int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = std::getenv("FAKE_CUDA_IDLE") == nullptr ? 1 : 0;
  return 0;
}
int cuCtxGetCurrent(void** context) {
  *context = nullptr;
  if (at_exit != nullptr) at_exit();
  return 0;
}
void fake_cuda_at_exit(void (*callback)()) {
  at_exit = callback;
}
}

#else

#include <dlfcn.h>

namespace {

struct State {
  abi::Callback* callback = nullptr;
  abi::BufferRequested* requested = nullptr;
  abi::BufferCompleted* completed = nullptr;
  abi::Timestamp* clock = nullptr;
  std::set<std::uint32_t> kinds;
  std::set<std::uint32_t> calls_off;
  bool calls = false;
  bool subscribed = false;
  int finalized = 0;
  std::uint64_t enabled_at = 0;
};
State state;

void api_call_ends() {
  const abi::CallbackHead head{abi::kSiteExit};
  if (state.callback != nullptr) state.callback(nullptr, abi::kDomainDriver, 304, &head);
}

template <class Head>
void put(std::uint8_t*& at, const Head& head) {
  std::memcpy(at, &head, sizeof(head));
  at += sizeof(head);
}

/// Two kernels, one of them unfinished, a copy, and a call if calls are on.
void deliver() {
  std::uint8_t* buffer = nullptr;
  std::size_t bytes = 0;
  std::size_t records = 0;
  state.requested(&buffer, &bytes, &records);
  if (buffer == nullptr) return;
  auto* at = buffer;
  abi::KernelHead kernel{};
  kernel.kind = abi::kKindConcurrentKernel;
  kernel.start = state.enabled_at;
  kernel.end = state.enabled_at + 100;
  kernel.stream = 7;
  kernel.grid[0] = 2;
  kernel.grid[1] = kernel.grid[2] = 1;
  kernel.block[0] = 32;
  kernel.block[1] = kernel.block[2] = 1;
  kernel.correlation = 11;
  kernel.name = "fake_gemm";
  put(at, kernel);
  kernel.end = 0;
  put(at, kernel);
  abi::CopyHead copy{};
  copy.kind = abi::kKindCopy;
  copy.copy_kind = 1;
  copy.source_kind = 1;
  copy.destination_kind = 3;
  copy.bytes = 4096;
  copy.start = state.enabled_at + 200;
  copy.end = state.enabled_at + 300;
  put(at, copy);
  abi::CallHead call{};
  call.kind = abi::kKindRuntime;
  call.callback_id = 211;
  call.start = state.enabled_at;
  call.end = state.enabled_at + 5;
  call.thread = 77;
  call.correlation = 11;
  if (state.calls && !state.calls_off.contains(call.callback_id)) put(at, call);
  call.callback_id = 17;  // cudaGetDevice
  if (state.calls && !state.calls_off.contains(call.callback_id)) put(at, call);
  state.completed(nullptr, 0, buffer, bytes, static_cast<std::size_t>(at - buffer));
}

}  // namespace

extern "C" {

abi::Result cuptiSubscribe(abi::Subscriber* subscriber, abi::Callback* callback, void*) {
  if (const char* taken = std::getenv("FAKE_CUPTI_TAKEN"); taken != nullptr) return abi::kMultipleSubscribers;
  if (state.subscribed) return abi::kMultipleSubscribers;
  state.callback = callback;
  state.subscribed = true;
  *subscriber = reinterpret_cast<abi::Subscriber>(&state);
  return abi::kSuccess;
}
abi::Result cuptiUnsubscribe(abi::Subscriber) {
  state.subscribed = false;
  return abi::kSuccess;
}
abi::Result cuptiEnableDomain(std::uint32_t, abi::Subscriber, std::uint32_t) {
  using Register = void(void (*)());
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  auto* at_exit = driver != nullptr ? reinterpret_cast<Register*>(::dlsym(driver, "fake_cuda_at_exit")) : nullptr;
  if (at_exit != nullptr) at_exit(api_call_ends);
  return abi::kSuccess;
}
abi::Result cuptiActivityRegisterCallbacks(abi::BufferRequested* requested, abi::BufferCompleted* completed) {
  state.requested = requested;
  state.completed = completed;
  return abi::kSuccess;
}
abi::Result cuptiActivityEnable(std::uint32_t kind) {
  if (std::getenv("FAKE_CUPTI_DENIED") != nullptr) return 35;
  state.enabled_at = state.clock != nullptr ? state.clock() : 1;
  state.kinds.insert(kind);
  state.calls = state.calls || kind == abi::kKindRuntime;
  return abi::kSuccess;
}
abi::Result cuptiActivityDisable(std::uint32_t kind) {
  state.kinds.erase(kind);
  return abi::kSuccess;
}
abi::Result cuptiActivityEnableRuntimeApi(std::uint32_t id, std::uint8_t on) {
  if (on == 0) state.calls_off.insert(id);
  return abi::kSuccess;
}
abi::Result cuptiActivityFlushAll(std::uint32_t) {
  deliver();
  state.calls_off.clear();
  state.calls = false;
  return abi::kSuccess;
}
abi::Result cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, std::uint8_t** record) {
  auto* next = *record == nullptr ? buffer : *record;
  if (*record != nullptr) {
    const auto kind = *reinterpret_cast<std::uint32_t*>(*record);
    next += kind == abi::kKindConcurrentKernel ? sizeof(abi::KernelHead)
            : kind == abi::kKindCopy           ? sizeof(abi::CopyHead)
                                               : sizeof(abi::CallHead);
  }
  if (next >= buffer + valid) return abi::kMaxLimitReached;
  *record = next;
  return abi::kSuccess;
}
abi::Result cuptiActivityRegisterTimestampCallback(abi::Timestamp* clock) {
  state.clock = clock;
  return abi::kSuccess;
}
abi::Result cuptiGetResultString(abi::Result code, const char** text) {
  *text = code == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR";
  return abi::kSuccess;
}
abi::Result cuptiGetCallbackName(std::uint32_t, std::uint32_t id, const char** name) {
  if (id > 600) return 1;
  *name = "cudaLaunchKernel_v7000";
  return abi::kSuccess;
}
abi::Result cuptiFinalize() {
  state.subscribed = false;
  state.callback = nullptr;
  ++state.finalized;
  return abi::kSuccess;
}

/// For the test: how often CUPTI was taken out, and how many kinds are still on.
int fake_cupti_finalized() {
  return state.finalized;
}
int fake_cupti_kinds_on() {
  return static_cast<int>(state.kinds.size());
}
}

#endif
