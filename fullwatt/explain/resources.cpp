#include "fullwatt/explain/resources.hpp"

#include <algorithm>
#include <map>

#include "fullwatt/explain/machine_facts.hpp"

namespace fullwatt::explain {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr const char* kDataSheet = "data sheet";
constexpr const char* kDriver = "driver (NVML)";

/// Mean and largest of a reading over the samples of one GPU.
struct Seen {
  double sum = 0;
  double largest = 0;
  double count = 0;

  bool any() const { return count > 0; }
  double mean() const { return sum / count; }
  void add(double value) {
    sum += value;
    largest = std::max(largest, value);
    count += 1;
  }
};

template <class Read>
Seen seen(const model::Run& run, const Interval& range, const TrainedGpu& gpu, Read read) {
  Seen all;
  for (const auto& sample : run.gpu_samples) {
    if (sample.at_ns < range.start_ns || sample.at_ns > range.end_ns || sample.gpu != gpu.run_index) continue;
    if (const std::optional<double> value = read(sample)) all.add(*value);
  }
  return all;
}

template <class T>
std::optional<double> number(const base::Reading<T>& reading) {
  return reading ? std::optional(static_cast<double>(*reading)) : std::nullopt;
}

/// Why there are no samples of the GPU.
std::string no_samples(const model::Run& run, const TrainedGpu& gpu) {
  if (!run.info.sampler.empty()) return run.info.sampler;
  return gpu.run_index ? "the driver does not tell" : "the run used no GPU that the driver shows";
}

model::ResourceUse power(const model::Run& run, const Interval& range, const TrainedGpu& gpu) {
  model::ResourceUse use{.id = "power", .unit = "W"};
  const auto watts = seen(run, range, gpu, [](const auto& sample) { return number(sample.power_w); });
  if (watts.any()) use.used = watts.mean();
  if (!watts.any()) use.reason = no_samples(run, gpu);
  if (gpu.nvml != nullptr && gpu.nvml->power_enforced_mw) {
    use.limit = *gpu.nvml->power_enforced_mw / 1e3;
    use.source = kDriver;
  } else if (gpu.peaks && gpu.peaks->power_w) {
    use.limit = gpu.peaks->power_w;
    use.source = kDataSheet;
  }
  return use;
}

model::ResourceUse memory(const model::Run& run, const model::TrainingProcess& trainer, const ProcessFacts& facts,
                          const Interval& range, const TrainedGpu& gpu) {
  model::ResourceUse use{.id = "memory", .unit = "GiB"};
  const auto bytes = seen(run, range, gpu, [](const auto& sample) { return number(sample.memory_used_bytes); });
  std::uint64_t reserved = facts.memory ? facts.memory->peak_reserved_bytes : 0;
  for (const auto& sample : trainer.memory) reserved = std::max(reserved, sample.reserved_bytes);
  if (bytes.any()) {
    use.used = bytes.largest / kGib;
  } else if (reserved > 0) {
    use.used = static_cast<double>(reserved) / kGib;
  } else {
    use.reason = no_samples(run, gpu);
  }
  if (gpu.nvml != nullptr && gpu.nvml->memory_total_bytes) {
    use.limit = static_cast<double>(*gpu.nvml->memory_total_bytes) / kGib;
    use.source = kDriver;
  } else if (gpu.peaks && gpu.peaks->memory_gb) {
    use.limit = gpu.peaks->memory_gb;
    use.source = kDataSheet;
  }
  return use;
}

std::string not_counted(const ProcessFacts& facts) {
  return facts.flops && !facts.flops->reason.empty() ? facts.flops->reason : "operations were not counted";
}

model::ResourceUse compute(const ProcessFacts& facts, const Steps& steps, const GpuTime& time, const TrainedGpu& gpu) {
  model::ResourceUse use{.id = "compute", .unit = "TFLOP/s"};
  if (!facts.flops || facts.flops->total <= 0) {
    use.reason = not_counted(facts);
  } else if (steps.known()) {
    use.used = facts.flops->total / (steps.mean_ms() / 1e3) / 1e12;
  }
  const auto precision = dominant_precision(facts, time);
  const auto peak = gpu.peaks ? gpu.peaks->peak(precision) : std::nullopt;
  if (peak) {
    use.limit = peak;
    use.source = precision + ", dense; " + kDataSheet;
  } else if (use.reason.empty()) {
    use.source = gpu.peaks ? "precision not known" : "peak of this GPU not known";
  }
  return use;
}

/// What the operations' tensors would move without caches; the GPU's own counters only an administrator may read.
model::ResourceUse bandwidth(const ProcessFacts& facts, const Steps& steps, const TrainedGpu& gpu) {
  model::ResourceUse use{.id = "memory-bandwidth", .unit = "GB/s"};
  const double bytes = facts.flops && facts.flops->bytes.contains("cuda") ? facts.flops->bytes.at("cuda") : 0;
  if (bytes > 0 && steps.known()) {
    use.used = bytes / (steps.mean_ms() / 1e3) / 1e9;
  } else {
    use.reason = not_counted(facts);
  }
  if (gpu.peaks && gpu.peaks->bandwidth_gbs) {
    use.limit = gpu.peaks->bandwidth_gbs;
    use.source = kDataSheet;
    if (use.used) use.used = std::min(*use.used, *use.limit);  // more than that came out of caches
  }
  return use;
}

/// The busier direction; a link carries both at once.
model::ResourceUse pcie(const model::Run& run, const Interval& range, const Steps& steps, const GpuTime& time,
                        const TrainedGpu& gpu) {
  model::ResourceUse use{.id = "pcie", .unit = "GB/s"};
  const auto in = seen(run, range, gpu, [](const auto& sample) { return number(sample.pcie_rx_kib_s); });
  const auto out = seen(run, range, gpu, [](const auto& sample) { return number(sample.pcie_tx_kib_s); });
  if (in.any() || out.any()) {
    use.used = std::max(in.any() ? in.mean() : 0, out.any() ? out.mean() : 0) * 1024 / 1e9;
  } else if (time.known() && steps.known()) {
    std::map<CopyUse::Direction, double> bytes;
    for (const auto& copy : time.copies) bytes[copy.direction] += copy.bytes;
    const double most = std::max(bytes[CopyUse::Direction::to_device], bytes[CopyUse::Direction::to_host]);
    use.used = most / (steps.mean_ms() / 1e3) / 1e9;
  } else {
    use.reason = no_samples(run, gpu);
  }
  if (gpu.nvml != nullptr && gpu.nvml->pcie_width && gpu.nvml->pcie_max_generation) {
    const double limit = catalog::pcie_gbs(*gpu.nvml->pcie_max_generation, *gpu.nvml->pcie_width);
    if (limit > 0) use.limit = limit;
    use.source = kDriver;
  }
  return use;
}

model::ResourceUse busy(const model::Run& run, const Interval& range, const Steps& steps, const GpuTime& time,
                        const TrainedGpu& gpu) {
  model::ResourceUse use{.id = "gpu-busy", .limit = 100, .unit = "%"};
  if (time.known() && steps.known()) {
    use.used = 100 * time.busy_ms / steps.mean_ms();
    use.source = "kernel times";
    return use;
  }
  const auto percent = seen(run, range, gpu, [](const auto& sample) { return number(sample.utilization_percent); });
  if (percent.any()) {
    use.used = percent.mean();
    use.source = kDriver;
  } else {
    use.reason = no_samples(run, gpu);
  }
  return use;
}

model::ResourceUse cpu(const model::Run& run, const Interval& range) {
  model::ResourceUse use{.id = "cpu", .unit = "CPUs"};
  Seen cpus;
  for (const auto& sample : run.host_samples) {
    if (sample.at_ns >= range.start_ns && sample.at_ns <= range.end_ns) cpus.add(sample.cpus_training);
  }
  if (cpus.any()) use.used = cpus.mean();
  if (!cpus.any()) use.reason = "the host was not sampled";
  use.limit = allowed_cpus(run);
  if (use.limit) use.source = "processors that the training may use";
  return use;
}

/// Which column of the peaks a dtype is computed in.
std::string precision_of_dtype(std::string_view dtype, const ProcessFacts& facts) {
  if (dtype.find("bfloat16") != std::string_view::npos) return "bf16";
  if (dtype.find("float16") != std::string_view::npos || dtype.find("half") != std::string_view::npos) return "fp16";
  if (dtype.find("float8") != std::string_view::npos) return "fp8";
  if (dtype.find("float32") == std::string_view::npos) return {};
  return facts.flag("matmul.allow_tf32").value_or(false) ? "tf32" : "fp32";
}

}  // namespace

std::vector<model::ResourceUse> resources_of(const model::Run& run, const model::TrainingProcess& trainer,
                                             const ProcessFacts& facts, const Steps& steps, const GpuTime& time,
                                             const TrainedGpu& gpu) {
  const auto range = stepping(trainer, steps);
  std::vector<model::ResourceUse> uses;
  if (gpu.known() || time.known()) {
    uses = {busy(run, range, steps, time, gpu), power(run, range, gpu),       memory(run, trainer, facts, range, gpu),
            compute(facts, steps, time, gpu),   bandwidth(facts, steps, gpu), pcie(run, range, steps, time, gpu)};
  }
  uses.push_back(cpu(run, range));
  return uses;
}

std::string dominant_precision(const ProcessFacts& facts, const GpuTime& time) {
  std::map<std::string, double> weights;
  for (const auto& use : time.kernels) {
    const auto kind = use.kind.kind;
    const bool matrix = kind == "matmul" || kind == "convolution" || kind == "attention" || kind == "rnn";
    if (matrix && !use.kind.precision.empty()) weights[std::string(use.kind.precision)] += use.ms;
  }
  if (weights.empty() && facts.flops) {
    for (const auto& [dtype, flops] : facts.flops->by_dtype) weights[precision_of_dtype(dtype, facts)] += flops;
  }
  const auto most = std::ranges::max_element(weights, {}, [](const auto& item) { return item.second; });
  return most == weights.end() ? std::string{} : most->first;
}

Interval stepping(const model::TrainingProcess& trainer, const Steps& steps) {
  Interval range;
  if (!steps.all.empty()) range = {steps.all.front().start_ns, steps.all.back().end_ns};
  if (!trainer.trend.empty()) {
    const auto first = trainer.trend.front().start_ns;
    range.start_ns = range.start_ns == 0 ? first : std::min(range.start_ns, first);
    range.end_ns = std::max(range.end_ns, trainer.trend.back().end_ns);
  }
  if (!steps.ceiling.empty()) range.end_ns = std::min(range.end_ns, steps.ceiling.front().start_ns);
  return range;
}

}  // namespace fullwatt::explain
