#include "fullwatt/api/gpu_watch.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "fullwatt/vendor/nvml/monitor.hpp"

namespace fullwatt::api {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 100ms;
constexpr std::size_t kMostLooks = 6000;  // ten minutes, some 600 KB

struct Look {
  GpuWatch::Clock::time_point at;
  std::optional<double> gpu_percent;
  std::optional<double> memory_percent;
  std::optional<double> power_w;
  std::optional<double> temperature_c;
  std::optional<double> sm_clock_mhz;
  std::optional<std::uint64_t> memory_used_bytes;
};

template <class To, class From>
std::optional<To> told(const base::Reading<From>& reading) {
  return reading ? std::optional<To>(static_cast<To>(*reading)) : std::nullopt;
}

Look look_of(const model::GpuSample& sample) {
  return {.at = GpuWatch::Clock::now(),
          .gpu_percent = told<double>(sample.utilization_percent),
          .memory_percent = told<double>(sample.memory_utilization_percent),
          .power_w = told<double>(sample.power_w),
          .temperature_c = told<double>(sample.temperature_c),
          .sm_clock_mhz = told<double>(sample.sm_clock_mhz),
          .memory_used_bytes = told<std::uint64_t>(sample.memory_used_bytes)};
}

using Looks = std::deque<Look>;
using Seen = std::ranges::subrange<Looks::const_iterator>;

std::optional<double> mean(const Seen& looks, std::optional<double> Look::* figure) {
  double sum = 0;
  std::size_t count = 0;
  for (const auto& look : looks) {
    if (!(look.*figure)) continue;
    sum += *(look.*figure);
    ++count;
  }
  return count > 0 ? std::optional(sum / static_cast<double>(count)) : std::nullopt;
}

/// Absent is less than anything.
template <class Figure>
Figure peak(const Seen& looks, Figure Look::* figure) {
  Figure most;
  for (const auto& look : looks) most = std::max(most, look.*figure);
  return most;
}

}  // namespace

/// It lives as long as the thread, even when that one hangs in the driver.
struct GpuWatch::Shared {
  std::string address;
  std::string library;
  mutable std::mutex mutex;
  std::condition_variable changed;
  bool is_over = false;
  std::string gpu;
  std::string reason;
  Looks looks;

  void cannot(std::string why) {
    const std::scoped_lock lock(mutex);
    reason = std::move(why);
    changed.notify_all();
  }
  void begin(const std::string& name) {
    const std::scoped_lock lock(mutex);
    gpu = name;
  }
  /// Waits for the next tick; false when it is over.
  bool add(const Look& look) {
    std::unique_lock lock(mutex);
    if (looks.size() >= kMostLooks) looks.pop_front();
    looks.push_back(look);
    changed.notify_all();
    return !changed.wait_for(lock, kTick, [this] { return is_over; });
  }
};

void GpuWatch::watch(const std::shared_ptr<Shared>& shared) {
  const auto monitor = vendor::nvml::Monitor::open(shared->library);
  if (!monitor) return shared->cannot(monitor.error().message);
  const auto& gpus = (*monitor)->gpus();
  auto gpu = std::ranges::find(gpus, shared->address, &model::RunGpu::bdf);
  if (gpu == gpus.end() && shared->address.empty()) gpu = gpus.begin();
  if (gpu == gpus.end()) return shared->cannot("NVML does not list the GPU " + shared->address);
  const auto index = static_cast<std::size_t>(gpu - gpus.begin());
  shared->begin(gpu->name);
  while (shared->add(look_of((*monitor)->sample(index)))) continue;
}

GpuWatch::GpuWatch(std::string address, std::string library) : shared_(std::make_shared<Shared>()) {
  shared_->address = std::move(address);
  shared_->library = std::move(library);
  std::thread([shared = shared_] { watch(shared); }).detach();
}

GpuWatch::~GpuWatch() {
  const std::scoped_lock lock(shared_->mutex);
  shared_->is_over = true;
  shared_->changed.notify_all();
}

void GpuWatch::wait_for_first(std::chrono::milliseconds limit) const {
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait_for(lock, limit, [&] { return !shared_->looks.empty() || !shared_->reason.empty(); });
}

UtilizationMetrics GpuWatch::since(Clock::time_point start) const {
  const std::scoped_lock lock(shared_->mutex);
  const auto& looks = shared_->looks;
  const Seen seen(std::ranges::lower_bound(looks, start, {}, &Look::at), looks.end());
  UtilizationMetrics metrics;
  metrics.gpu = shared_->gpu;
  metrics.reason = shared_->reason;
  metrics.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  metrics.looks = seen.size();
  if (metrics.looks == 0) {
    if (metrics.reason.empty()) metrics.reason = "the driver did not answer in this time";
    return metrics;
  }
  metrics.gpu_percent = mean(seen, &Look::gpu_percent);
  metrics.gpu_percent_peak = peak(seen, &Look::gpu_percent);
  metrics.memory_percent = mean(seen, &Look::memory_percent);
  metrics.power_w = mean(seen, &Look::power_w);
  metrics.temperature_c = mean(seen, &Look::temperature_c);
  metrics.sm_clock_mhz = mean(seen, &Look::sm_clock_mhz);
  metrics.memory_used_bytes = looks.back().memory_used_bytes;
  metrics.memory_used_bytes_peak = peak(seen, &Look::memory_used_bytes);
  return metrics;
}

}  // namespace fullwatt::api
