#include "fullwatt/explain/trained_gpu.hpp"

#include <algorithm>

namespace fullwatt::explain {
namespace {

const GpuFact* fact_of(const ProcessFacts& facts, int device) {
  const auto at = std::ranges::find(facts.gpus, device, &GpuFact::index);
  if (at != facts.gpus.end()) return &*at;
  return facts.gpus.empty() ? nullptr : &facts.gpus.front();
}

/// torch writes a UUID without the "GPU-" of NVML.
std::string as_nvml_writes(const std::string& uuid) {
  return uuid.empty() || uuid.starts_with("GPU-") || uuid.starts_with("MIG-") ? uuid : "GPU-" + uuid;
}

std::string uuid_of(const model::Run& run, const ProcessFacts& facts, const GpuFact* fact) {
  if (facts.device_check && !facts.device_check->uuid.empty()) return as_nvml_writes(facts.device_check->uuid);
  if (fact != nullptr && !fact->uuid.empty()) return as_nvml_writes(fact->uuid);
  const auto used = std::ranges::find(run.info.gpus, true, &model::RunGpu::used);
  return used == run.info.gpus.end() ? std::string{} : used->uuid;
}

void find_in_run(const model::Run& run, TrainedGpu& gpu) {
  for (std::size_t i = 0; i < run.info.gpus.size(); ++i) {
    const auto& candidate = run.info.gpus[i];
    if (gpu.uuid.empty() ? !candidate.used : candidate.uuid != gpu.uuid) continue;
    gpu.run_index = static_cast<int>(i);
    if (gpu.name.empty()) gpu.name = candidate.name;
    return;
  }
}

void find_in_machine(const model::Run& run, TrainedGpu& gpu) {
  if (!run.machine || gpu.uuid.empty()) return;
  for (const auto& device : run.machine->nvml.devices) {
    if (device.uuid.is(gpu.uuid)) gpu.nvml = &device;
  }
  for (const auto& device : run.machine->cuda.answers.devices) {
    if (as_nvml_writes(device.uuid) == gpu.uuid) gpu.cuda = &device;
  }
  if (gpu.nvml == nullptr) return;
  if (gpu.name.empty()) gpu.name = gpu.nvml->name.value_or("");
  if (gpu.capability.empty()) gpu.capability = gpu.nvml->compute_capability.value_or("");
}

catalog::GpuTraits traits_of(const TrainedGpu& gpu, const GpuFact* fact) {
  catalog::GpuTraits traits;
  traits.compute_capability = gpu.capability;
  if (gpu.cuda != nullptr && gpu.cuda->multiprocessors > 0) traits.multiprocessors = gpu.cuda->multiprocessors;
  if (fact != nullptr && fact->memory_bytes) {
    // Cards are named in GiB and show a little less.
    traits.memory_gb = static_cast<double>(*fact->memory_bytes) / (1024.0 * 1024 * 1024);
  }
  if (gpu.nvml != nullptr && gpu.nvml->max_clock_sm_mhz) traits.boost_mhz = *gpu.nvml->max_clock_sm_mhz;
  return traits;
}

}  // namespace

TrainedGpu find_trained_gpu(const model::Run& run, const ProcessFacts& facts, const GpuTime& time) {
  TrainedGpu gpu;
  const auto* fact = fact_of(facts, time.device);
  if (fact != nullptr) {
    gpu.name = fact->name;
    gpu.capability = fact->capability;
  }
  gpu.uuid = uuid_of(run, facts, fact);
  find_in_run(run, gpu);
  find_in_machine(run, gpu);
  if (!gpu.name.empty()) gpu.peaks = catalog::gpu_peaks(gpu.name, traits_of(gpu, fact));
  return gpu;
}

}  // namespace fullwatt::explain
