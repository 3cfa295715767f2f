// A libcupti that a test steers: it gives the seat or refuses it, delivers kernels when flushed, calls back as if a
// kernel were launched as soon as launches are listened to, and counts what is still on. A second library built from
// the same file, with FAKE_DRIVER, is a libcuda.so.1 with one active context.

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

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
  std::set<std::uint32_t> kinds;
  std::set<std::pair<std::uint32_t, std::uint32_t> > callbacks;  ///< domain and number
  bool subscribed = false;
  int finalized = 0;
  std::uint64_t enabled_at = 0;
};
State state;

constexpr std::uint32_t kGetDevice = 17;
constexpr std::uint32_t kLaunch = 211;
constexpr std::uint32_t kSynchronize = 165;
constexpr std::uint32_t kDriverLaunch = 307;
constexpr std::uint32_t kDriverGetContext = 304;

void call_back(std::uint32_t site, std::uint32_t domain, std::uint32_t id) {
  abi::CallbackHead head{};
  head.site = site;
  head.correlation = 11;
  state.callback(nullptr, domain, id, &head);
}
void call_back_if_wanted(std::uint32_t site, std::uint32_t domain, std::uint32_t id) {
  if (state.callbacks.contains({domain, id})) call_back(site, domain, id);
}

/// The runtime's launch, which calls the driver's, and a call that nobody asked for.
void launch() {
  call_back_if_wanted(abi::kSiteEnter, abi::kDomainRuntime, kGetDevice);
  call_back_if_wanted(abi::kSiteExit, abi::kDomainRuntime, kGetDevice);
  call_back_if_wanted(abi::kSiteEnter, abi::kDomainRuntime, kLaunch);
  call_back_if_wanted(abi::kSiteEnter, abi::kDomainDriver, kDriverLaunch);
  call_back_if_wanted(abi::kSiteExit, abi::kDomainDriver, kDriverLaunch);
  call_back_if_wanted(abi::kSiteExit, abi::kDomainRuntime, kLaunch);
}

/// The runtime's way of waiting, which no call of the driver's tells of.
void synchronize() {
  call_back_if_wanted(abi::kSiteEnter, abi::kDomainRuntime, kSynchronize);
  call_back_if_wanted(abi::kSiteExit, abi::kDomainRuntime, kSynchronize);
}

void api_call_ends() {
  if (state.callback != nullptr) call_back(abi::kSiteExit, abi::kDomainDriver, kDriverGetContext);
}

template <class Head>
void put(std::uint8_t*& at, const Head& head) {
  std::memcpy(at, &head, sizeof(head));
  at += sizeof(head);
}

/// Two kernels, one of them unfinished, and a copy.
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
/// A clock of its own, as that of the real one.
abi::Result cuptiGetTimestamp(std::uint64_t* now) {
  const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
  *now = static_cast<std::uint64_t>(std::chrono::nanoseconds(since_start + std::chrono::hours(10'000)).count());
  return abi::kSuccess;
}
abi::Result cuptiActivityEnable(std::uint32_t kind) {
  if (std::getenv("FAKE_CUPTI_DENIED") != nullptr) return 35;
  cuptiGetTimestamp(&state.enabled_at);
  state.kinds.insert(kind);
  return abi::kSuccess;
}
abi::Result cuptiActivityDisable(std::uint32_t kind) {
  state.kinds.erase(kind);
  return abi::kSuccess;
}
abi::Result cuptiEnableCallback(std::uint32_t on, abi::Subscriber, std::uint32_t domain, std::uint32_t id) {
  if (on == 0) {
    state.callbacks.erase({domain, id});
  } else {
    state.callbacks.insert({domain, id});
    if (domain == abi::kDomainDriver && id == kDriverLaunch) launch();
    if (domain == abi::kDomainRuntime && id == kSynchronize) synchronize();
  }
  return abi::kSuccess;
}
abi::Result cuptiActivityFlushAll(std::uint32_t) {
  deliver();
  return abi::kSuccess;
}
abi::Result cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, std::uint8_t** record) {
  auto* next = *record == nullptr ? buffer : *record;
  if (*record != nullptr) {
    const auto kind = *reinterpret_cast<std::uint32_t*>(*record);
    next += kind == abi::kKindConcurrentKernel ? sizeof(abi::KernelHead) : sizeof(abi::CopyHead);
  }
  if (next >= buffer + valid) return abi::kMaxLimitReached;
  *record = next;
  return abi::kSuccess;
}
abi::Result cuptiGetResultString(abi::Result code, const char** text) {
  *text = code == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR";
  return abi::kSuccess;
}
abi::Result cuptiGetCallbackName(std::uint32_t domain, std::uint32_t id, const char** name) {
  if (id > 600) return 1;
  *name = domain == abi::kDomainRuntime ? "cudaDeviceSynchronize_v3020" : "cuLaunchKernel_ptsz";
  return abi::kSuccess;
}
abi::Result cuptiFinalize() {
  state.subscribed = false;
  state.callback = nullptr;
  ++state.finalized;
  return abi::kSuccess;
}

/// For the test: how often CUPTI was taken out, and how many kinds and callbacks are still on.
int fake_cupti_finalized() {
  return state.finalized;
}
int fake_cupti_kinds_on() {
  return static_cast<int>(state.kinds.size() + state.callbacks.size());
}
}

#endif
