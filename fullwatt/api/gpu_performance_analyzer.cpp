#include "fullwatt/api/gpu_performance_analyzer.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <unistd.h>

#include "fullwatt/api/gpu_watch.hpp"
#include "fullwatt/api/outcome.hpp"
#include "fullwatt/engine/gpu_card.hpp"

namespace fullwatt::api {
namespace {

constexpr const char* kNoGpu = "torch sees no GPU ('fullwatt doctor' says why)";

bool has_gpu(int index) {
  return at::globalContext().hasCUDA() && index >= 0 && static_cast<std::size_t>(index) < at::getNumGPUs();
}

/// Empty where torch does not know; the driver's first is looked at then.
std::string address_of(int index) {
  return has_gpu(index) ? engine::gpu_card(static_cast<c10::DeviceIndex>(index)).pci_address : "";
}

template <class Work>
UtilizationMetrics watched(int index, const Work& work) {
  constexpr auto kLongestStart = std::chrono::seconds(3);
  const GpuWatch watch(with_torch([&] { return address_of(index); }));
  watch.wait_for_first(kLongestStart);
  const auto start = GpuWatch::Clock::now();
  work();
  return watch.since(start);
}

void add_gpu(MemoryMetrics& metrics, c10::DeviceIndex index) {
  using c10::CachingAllocator::StatType;
  constexpr auto kAll = static_cast<std::size_t>(StatType::AGGREGATE);
  const auto bytes = [](auto count) { return static_cast<std::uint64_t>(std::max<std::int64_t>(0, count)); };
  at::globalContext().lazyInitDevice(at::kCUDA);  // without it there are no statistics yet
  const auto [free, total] = at::accelerator::getMemoryInfo(index);
  metrics.free = free;
  metrics.total = total;
  if (total > 0) metrics.used_percent = 100 * (1 - static_cast<double>(free) / static_cast<double>(total));
  const auto stats = at::accelerator::getDeviceStats(index);
  metrics.allocated = bytes(stats.allocated_bytes.at(kAll).current);
  metrics.allocated_peak = bytes(stats.allocated_bytes.at(kAll).peak);
  metrics.reserved = bytes(stats.reserved_bytes.at(kAll).current);
  metrics.reserved_peak = bytes(stats.reserved_bytes.at(kAll).peak);
}

void add_host(MemoryMetrics& metrics) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  metrics.host_process = resident * page;
  metrics.host_total = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page;
}

/// A benchmark's training on one device.
class Trial {
 public:
  Trial(const Benchmark& benchmark, const std::string& device)
      : benchmark_(benchmark),
        accelerator_(made(benchmark)),
        config_(accelerator_.setup_gpu_training(on(benchmark.config, device))),
        loader_(accelerator_.optimize_data_loading(benchmark.samples)),
        monitor_(accelerator_.enable_performance_monitoring()) {}

  PerformanceMetrics run() {
    warm_up();
    const auto steps = steps_of_a_round();
    auto whole = accelerator_.enable_performance_monitoring();
    std::vector<double> speeds;
    for (int round = 0; round < rounds(); ++round) speeds.push_back(timed(steps).samples_per_second);
    std::ranges::sort(speeds);
    return metrics_of({speeds[speeds.size() / 2], speeds.front(), speeds.back()}, whole.figures());
  }

 private:
  static TrainingAccelerator made(const Benchmark& benchmark) {
    if (!benchmark.make_model)
      raise({base::Error::Kind::bad_input, "the benchmark has no model", "Give a function that makes one."});
    auto model = benchmark.make_model();
    return {std::move(model.network), std::move(model.loss)};
  }
  static TrainingConfig on(TrainingConfig config, const std::string& device) {
    config.hardware.device = device;
    return config;
  }

  int rounds() const { return std::max(1, benchmark_.rounds); }
  double round_seconds() const { return std::max(0.0, benchmark_.seconds) / rounds(); }

  /// So many steps, to the end of their work on the device.
  TrainingFigures timed(std::uint64_t steps) {
    monitor_.figures();
    for (std::uint64_t i = 0; i < steps; ++i) next_step();
    return monitor_.figures();
  }

  void next_step() {
    auto batch = loader_.begin();
    accelerator_.step(*batch);
  }

  /// Kernels are chosen, graphs recorded, memory taken; a slow device does fewer steps of it.
  void warm_up() {
    double spent = 0;
    for (int i = 0; i < benchmark_.warm_up_steps && (i == 0 || spent < benchmark_.seconds); ++i)
      spent += timed(1).seconds;
  }

  /// Found by doubling: a step alone says little of many that the device has at once.
  std::uint64_t steps_of_a_round() {
    for (std::uint64_t steps = 1;; steps *= 2) {
      const double seconds = timed(steps).seconds;
      if (seconds < round_seconds() / 4) continue;
      return std::max<std::uint64_t>(
          1, static_cast<std::uint64_t>(std::llround(static_cast<double>(steps) * round_seconds() / seconds)));
    }
  }

  PerformanceMetrics metrics_of(const Speed& speed, const TrainingFigures& whole) const {
    PerformanceMetrics metrics;
    metrics.device = config_.device;
    metrics.precision = config_.precision;
    metrics.samples_per_second = speed.median;
    metrics.speed = speed;
    metrics.step_ms = 1e3 * static_cast<double>(config_.batch_size) / speed.median;
    metrics.steps = whole.steps;
    metrics.gpu_utilization_percent = whole.gpu.gpu_percent;
    metrics.memory_utilization_percent = whole.gpu.memory_percent;
    metrics.memory_used_bytes = whole.gpu.memory_used_bytes_peak;
    metrics.power_w = whole.gpu.power_w;
    return metrics;
  }

  const Benchmark& benchmark_;
  TrainingAccelerator accelerator_;
  AcceleratedConfig config_;
  OptimizedLoader loader_;
  PerformanceMonitor monitor_;
};

}  // namespace

UtilizationMetrics GpuPerformanceAnalyzer::measure_gpu_utilization(std::chrono::milliseconds time) const {
  return watched(gpu_, [&] { std::this_thread::sleep_for(time); });
}

UtilizationMetrics GpuPerformanceAnalyzer::measure_gpu_utilization(const std::function<void()>& work) const {
  return watched(gpu_, work);
}

MemoryMetrics GpuPerformanceAnalyzer::analyze_memory_usage() const {
  MemoryMetrics metrics;
  add_host(metrics);
  with_torch([&] {
    if (has_gpu(gpu_)) {
      add_gpu(metrics, static_cast<c10::DeviceIndex>(gpu_));
    } else {
      metrics.reason = kNoGpu;
    }
  });
  return metrics;
}

PerformanceMetrics GpuPerformanceAnalyzer::benchmark_training_speed(const Benchmark& benchmark) const {
  auto metrics = Trial(benchmark, benchmark.config.hardware.device).run();
  if (metrics.device != "cpu" && benchmark.measures_cpu)
    metrics.improvement_over_cpu = decide_device(Trial(benchmark, "cpu").run().speed, metrics.speed).improvement;
  return metrics;
}

ComparisonResult GpuPerformanceAnalyzer::compare_cpu_vs_gpu_performance(const Benchmark& benchmark) const {
  ComparisonResult result;
  result.cpu = Trial(benchmark, "cpu").run();
  std::optional<Speed> gpu_speed;
  if (has_gpu(0)) {
    result.gpu = Trial(benchmark, "cuda").run();
    gpu_speed = result.gpu->speed;
  } else {
    result.no_gpu = kNoGpu;
  }
  result.decision = decide_device(result.cpu.speed, gpu_speed);
  if (result.gpu) result.gpu->improvement_over_cpu = result.decision.improvement;
  return result;
}

}  // namespace fullwatt::api
