#include "fullwatt/tune/starting_settings.hpp"

#include <algorithm>

#include "catalog/starting_points.hpp"

#include "fullwatt/base/version.hpp"

namespace fullwatt::tune {
namespace {

/// The shortest type that the card's tensor cores compute without harm; where that is bfloat16 the engine takes it
/// by itself, and float32 for networks that are slower in it.
std::string precision_of(const std::string& capability) {
  const base::Version version(capability);
  if (capability.empty() || version >= base::Version("8.0")) return "auto";
  return version >= base::Version("7.0") ? "fp16" : "false";
}

}  // namespace

std::vector<std::string> starting_settings(const model::GpuStatus& gpu, int cpus) {
  constexpr std::uint64_t kGigabyte = 1ULL << 30U;
  constexpr int kLeastAhead = 2;
  const auto gigabytes = gpu.memory_total_bytes.value_or(0) / kGigabyte;
  const auto start = catalog::starting_point(static_cast<double>(gigabytes));
  const auto cached = gigabytes * static_cast<std::uint64_t>(start.on_gpu_percent) / 100;
  return {"train.batch_size=" + std::to_string(start.batch),
          "train.num_workers=" + std::to_string(std::min(start.workers, std::max(1, cpus / 2))),
          "train.prefetch_factor=" + std::to_string(std::max(kLeastAhead, start.prefetch)),
          "train.amp=" + precision_of(gpu.compute_capability),
          std::string("train.activation_checkpointing=") + (start.recompute ? "true" : "false"),
          "data.device_cache_gb=" + std::to_string(cached)};
}

}  // namespace fullwatt::tune
