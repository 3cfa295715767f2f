#include "fullwatt/api/gpu_optimizer.hpp"

#include <algorithm>
#include <thread>

#include "catalog/starting_points.hpp"

#include "fullwatt/base/version.hpp"
#include "fullwatt/tune/batch_size.hpp"

namespace fullwatt::api {
namespace {

constexpr std::uint64_t kGigabyte = 1ULL << 30;
constexpr std::uint64_t kLeastForSamples = 4 * kGigabyte;  ///< less holds hardly any data set

bool has(const GpuStatus& gpu, const char* capability) {
  return !gpu.compute_capability.empty() &&
         base::Version(gpu.compute_capability) >= base::Version(std::string(capability));
}

std::uint64_t others_of(const GpuStatus& gpu) {
  const auto total = gpu.memory_total_bytes.value_or(0);
  return total - std::min(total, gpu.memory_free_bytes.value_or(total));
}

}  // namespace

GpuOptimizer::GpuOptimizer(DiagnosticOptions options)
    : tool_(std::make_unique<GpuDiagnosticTool>(std::move(options))) {}
GpuOptimizer::~GpuOptimizer() = default;
GpuOptimizer::GpuOptimizer(GpuOptimizer&&) noexcept = default;
GpuOptimizer& GpuOptimizer::operator=(GpuOptimizer&&) noexcept = default;

OptimizedDevice GpuOptimizer::optimize_device_selection() {
  auto found = tool_->diagnose_device_selection();
  return {std::move(found.selected), std::move(found.reason), std::move(found.environment)};
}

MixedPrecisionConfig GpuOptimizer::configure_mixed_precision() {
  const auto device = optimize_device_selection();
  if (!device.gpu) return {.reason = device.reason};
  const auto& gpu = *device.gpu;
  if (gpu.compute_capability.empty())
    return {.reason = "The compute capability of " + gpu.device_name + " is not known."};
  const auto name = gpu.device_name + " (compute capability " + gpu.compute_capability + ")";
  if (has(gpu, "8.0")) {
    return {.enabled = true,
            .dtype = "bfloat16",
            .needs_scaler = false,
            .tf32 = true,
            .reason = name + " computes bfloat16 on tensor cores; its range is that of float32."};
  }
  if (has(gpu, "7.0")) {
    return {.enabled = true,
            .dtype = "float16",
            .needs_scaler = true,
            .tf32 = false,
            .reason = name + " computes float16 on tensor cores, and has none for bfloat16."};
  }
  return {.reason = name + " has no tensor cores: float16 would be no faster."};
}

MemoryConfig GpuOptimizer::setup_memory_optimization() {
  const auto device = optimize_device_selection();
  MemoryConfig config;
  if (!device.gpu || device.gpu->memory_total_bytes.value_or(0) == 0) {
    config.pinned_memory = device.gpu.has_value();
    config.reason = device.gpu ? "The memory of " + device.gpu->device_name + " is not known." : device.reason;
    return config;
  }
  const auto total = device.gpu->memory_total_bytes.value_or(0);
  config.usable_bytes = tune::usable_bytes(total, others_of(*device.gpu));
  config.allocator = "expandable_segments:True";
  const auto start = catalog::starting_point(static_cast<double>(total) / static_cast<double>(kGigabyte));
  config.cache_samples = total * static_cast<std::uint64_t>(start.on_gpu_percent) / 100 >= kLeastForSamples;
  config.activation_checkpoints = start.recompute;
  config.reason = device.gpu->device_name + " has " + std::to_string(total / kGigabyte) + " GB, of which " +
                  std::to_string(config.usable_bytes / kGigabyte) + " can be used by one training.";
  return config;
}

StartingValues GpuOptimizer::starting_values(std::uint64_t samples) {
  const auto device = optimize_device_selection();
  const auto bytes = device.gpu ? device.gpu->memory_total_bytes.value_or(0) : 0;
  const auto start = catalog::starting_point(static_cast<double>(bytes) / static_cast<double>(kGigabyte), samples);
  const auto cpus = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return {start.batch, std::min(start.workers, cpus), start.prefetch,
          "As on cards such as " + std::string(start.such_as) + "; to be corrected by measuring."};
}

std::uint64_t GpuOptimizer::optimize_batch_size(std::uint64_t model_size, std::uint64_t gpu_memory) {
  return tune::estimated_batch(model_size, gpu_memory);
}

BatchSize GpuOptimizer::optimize_batch_size(const std::function<BatchMeasurement(std::uint64_t batch)>& measure,
                                            std::uint64_t start, std::uint64_t gpu_memory) {
  const auto usable = gpu_memory > 0 ? tune::usable_bytes(gpu_memory) : setup_memory_optimization().usable_bytes;
  const auto probe = [&](const tune::BatchPrediction& asked) -> base::Result<tune::BatchProbe> {
    const auto measured = measure(asked.batch);
    return tune::BatchProbe{.batch = asked.batch,
                            .peak_bytes = measured.peak_bytes,
                            .samples_per_second = measured.samples_per_second,
                            .evaluation_bytes = measured.evaluation_bytes,
                            .ran_out = measured.ran_out};
  };
  const auto choice = tune::find_batch(probe, start, usable);
  BatchSize result;
  if (!choice) {
    result.reason = choice.error().message;
    return result;
  }
  result.batch = choice->batch;
  result.largest = choice->largest;
  result.predicted_bytes = choice->memory.at(choice->batch);
  for (const auto& tried : choice->probes)
    result.tried.push_back(
        {tried.batch, tried.peak_bytes, tried.samples_per_second, tried.evaluation_bytes, tried.ran_out});
  result.reason = choice->why;
  return result;
}

BatchSize GpuOptimizer::keep_effective_batch(BatchSize found, std::uint64_t effective) {
  const auto parts = tune::accumulate(effective, found.batch);
  if (parts.steps == 0) return found;
  found.batch = parts.batch;
  found.accumulation = parts.steps;
  found.reason = std::to_string(parts.steps) + " batches make a step of " + std::to_string(effective) + " samples.";
  return found;
}

}  // namespace fullwatt::api
