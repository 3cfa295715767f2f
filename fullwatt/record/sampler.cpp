#include "fullwatt/record/sampler.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include "fullwatt/base/files.hpp"
#include "fullwatt/record/host_figures.hpp"
#include "fullwatt/record/spool_writer.hpp"
#include "fullwatt/vendor/nvml/monitor.hpp"

namespace fullwatt::record {
namespace {

using namespace std::chrono_literals;

constexpr auto kGpuTick = 100ms;
constexpr auto kManyGpusTick = 500ms;
constexpr auto kPowerTick = 300ms;
constexpr auto kHostTick = 1000ms;
constexpr auto kSlowTick = 2000ms;
constexpr auto kWriteTick = 5000ms;
constexpr std::size_t kManyGpus = 3;

}  // namespace

/// What the threads share. It lives as long as the last of them, even when that one hangs in the driver.
struct Sampler::Shared {
  int root_pid = 0;
  std::string file;
  Detail detail = Detail::usual;
  mutable std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  Samples samples;
  Status status;

  /// Waits; false when it is time to stop.
  bool wait(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex);
    return !changed.wait_for(lock, time, [&] { return stopping; });
  }

  /// Whether power is known by the counter of energy alone.
  bool counts_energy() const {
    const std::lock_guard lock(mutex);
    return detail == Detail::power && samples.power().empty();
  }

  void take(const model::GpuSample& sample) {
    const std::lock_guard lock(mutex);
    samples.add(sample);
    const auto& gpus = status.gpus;
    const bool any_used = std::ranges::any_of(gpus, &model::RunGpu::used);
    const auto index = static_cast<std::size_t>(sample.gpu);
    if (any_used ? gpus[index].used : index == 0) status.newest_gpu = sample;
  }

  void write() {
    Samples copy;
    {
      const std::lock_guard lock(mutex);
      copy = samples;
    }
    [[maybe_unused]] const auto written = copy.write(file);
  }
};

/// The GPUs' threads: one for the tick, one for what is slow, and one for what the driver keeps.
void Sampler::watch_gpus(const std::shared_ptr<Shared>& shared) {
  auto opened = vendor::nvml::Monitor::open();
  if (!opened) {
    const std::lock_guard lock(shared->mutex);
    shared->status.reason = opened.error().message;
    return;
  }
  const std::shared_ptr<vendor::nvml::Monitor> monitor = std::move(*opened);
  {
    const std::lock_guard lock(shared->mutex);
    shared->status.gpus = monitor->gpus();
  }
  std::thread([shared, monitor] {
    while (shared->wait(kSlowTick)) {
      std::set<int> tree;
      {
        const std::lock_guard lock(shared->mutex);
        tree.insert(shared->status.tree.begin(), shared->status.tree.end());
      }
      for (std::size_t gpu = 0; gpu < monitor->gpus().size(); ++gpu) {
        const auto pids = monitor->processes(gpu);
        auto sample = monitor->sample(gpu);
        monitor->add_energy(sample);
        monitor->add_traffic(sample);
        sample.at_ns = now_ns();
        const std::lock_guard lock(shared->mutex);
        if (std::ranges::any_of(pids, [&](int pid) { return tree.contains(pid); }))
          shared->status.gpus[gpu].used = true;
        shared->samples.add(sample);
      }
    }
  }).detach();
  if (shared->detail == Detail::power) std::thread([shared, monitor] { follow_power(*shared, *monitor); }).detach();
  const auto tick = monitor->gpus().size() >= kManyGpus ? kManyGpusTick : kGpuTick;
  for (bool is_first = true; shared->wait(tick); is_first = false) {
    for (std::size_t gpu = 0; gpu < monitor->gpus().size(); ++gpu) {
      auto sample = monitor->sample(gpu);
      if (is_first || shared->counts_energy()) monitor->add_energy(sample);
      sample.at_ns = now_ns();
      shared->take(sample);
    }
  }
}

/// The driver tells when by the clock of the day.
void Sampler::follow_power(Shared& shared, const vendor::nvml::Monitor& monitor) {
  const auto day_us = [] {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  std::vector<std::uint64_t> newest_us(monitor.gpus().size(), static_cast<std::uint64_t>(day_us()));
  while (shared.wait(kPowerTick)) {
    for (std::size_t gpu = 0; gpu < newest_us.size(); ++gpu) {
      const auto found = monitor.power_since(gpu, newest_us[gpu]);
      const auto offset_ns = static_cast<std::int64_t>(now_ns()) - 1000 * day_us();
      const std::lock_guard lock(shared.mutex);
      for (const auto& [at_us, watts] : found) {
        newest_us[gpu] = std::max(newest_us[gpu], at_us);
        shared.samples.add(
            model::PowerSample{static_cast<std::uint64_t>(1000 * static_cast<std::int64_t>(at_us) + offset_ns),
                               static_cast<int>(gpu), watts});
      }
    }
  }
}

void Sampler::watch_host(const std::shared_ptr<Shared>& shared) {
  base::RealFiles files;
  HostFigures figures(files);
  auto written = std::chrono::steady_clock::now();
  do {
    const auto tree = process_tree(files, shared->root_pid);
    const auto sample = figures.sample(now_ns(), tree);
    {
      const std::lock_guard lock(shared->mutex);
      if (shared->status.newest_host) shared->samples.add(sample);
      shared->status.newest_host = sample;
      shared->status.tree = tree;
    }
    if (std::chrono::steady_clock::now() - written >= kWriteTick) {
      shared->write();
      written = std::chrono::steady_clock::now();
    }
  } while (shared->wait(kHostTick));
}

Sampler::Sampler(int root_pid, std::string file, Detail detail) : shared_(std::make_shared<Shared>()) {
  shared_->root_pid = root_pid;
  shared_->file = std::move(file);
  shared_->detail = detail;
  std::thread([shared = shared_] { watch_gpus(shared); }).detach();
  std::thread([shared = shared_] { watch_host(shared); }).detach();
}

Sampler::~Sampler() {
  const std::lock_guard lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
}

Sampler::Status Sampler::status() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->status;
}

void Sampler::stop() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
    shared_->changed.notify_all();
  }
  shared_->write();
}

}  // namespace fullwatt::record
