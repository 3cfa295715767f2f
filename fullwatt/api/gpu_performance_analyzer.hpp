#pragma once

#include <chrono>

#include "fullwatt/api/device_decision.hpp"
#include "fullwatt/api/training_accelerator.hpp"

/// How fast a training is, and what the GPU does meanwhile; link `fullwatt::torch`.
namespace fullwatt::api {

/// Bytes. What is not known is absent: all of the GPU's where torch sees none.
struct MemoryMetrics {
  std::string reason;                      ///< why there are no figures of a GPU; empty where there are
  std::optional<std::uint64_t> total;      ///< of the GPU
  std::optional<std::uint64_t> free;       ///< of it
  std::optional<double> used_percent;      ///< by all processes and the driver
  std::optional<std::uint64_t> allocated;  ///< tensors of this process
  std::optional<std::uint64_t> allocated_peak;
  std::optional<std::uint64_t> reserved;  ///< that torch keeps, tensors and free pieces
  std::optional<std::uint64_t> reserved_peak;
  std::uint64_t host_process = 0;  ///< of this process in the machine's memory
  std::uint64_t host_total = 0;
};

/// A2.
struct PerformanceMetrics {
  std::string device;
  std::string precision;
  double samples_per_second = 0;  ///< the median of the rounds
  Speed speed;                    ///< of all rounds
  double step_ms = 0;
  std::uint64_t steps = 0;  ///< that were measured
  std::optional<double> gpu_utilization_percent;
  std::optional<double> memory_utilization_percent;  ///< of the time memory was read or written, as the driver has it
  std::optional<std::uint64_t> memory_used_bytes;    ///< of the card at most, by all processes
  std::optional<double> power_w;
  std::optional<double> improvement_over_cpu;  ///< absent where it is the CPU, or that was not measured
};

struct ComparisonResult {
  PerformanceMetrics cpu;
  std::optional<PerformanceMetrics> gpu;
  std::string no_gpu;  ///< why there is none; empty where there is
  DeviceDecision decision;
};

/// What is trained, and for how long.
struct Benchmark {
  struct Model {
    std::shared_ptr<torch::nn::Module> network;
    Loss loss;
  };
  std::function<Model()> make_model;  ///< a new one for each device
  Fields samples;                     ///< at least a batch; the first dimension counts them
  TrainingConfig config;
  int warm_up_steps = 10;
  int rounds = 5;
  double seconds = 5;        ///< of all rounds on a device; a step is finished in any case
  bool measures_cpu = true;  ///< beside the GPU, for the improvement
};

/// Requirement A1. Works without a GPU: its figures are then absent, with the reason. What fails is thrown as
/// std::runtime_error.
class GpuPerformanceAnalyzer {
 public:
  /// The GPU as torch counts them; where torch sees none, the first that the driver lists.
  explicit GpuPerformanceAnalyzer(int gpu = 0) : gpu_(gpu) {}

  /// For some time, or while something runs. The driver's figures are means over up to a second: shorter times tell
  /// little.
  UtilizationMetrics measure_gpu_utilization(std::chrono::milliseconds time = std::chrono::seconds(2)) const;
  UtilizationMetrics measure_gpu_utilization(const std::function<void()>& work) const;
  MemoryMetrics analyze_memory_usage() const;

  /// Trains on the device that the configuration names.
  PerformanceMetrics benchmark_training_speed(const Benchmark& benchmark) const;
  /// Trains on the CPU, and on the GPU where there is one.
  ComparisonResult compare_cpu_vs_gpu_performance(const Benchmark& benchmark) const;

 private:
  int gpu_;
};

}  // namespace fullwatt::api
