#include "fullwatt/explain/machine_facts.hpp"

#include <algorithm>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/resources.hpp"

namespace fullwatt::explain {

std::optional<double> online_cpus(const model::Run& run) {
  if (!run.machine || run.machine->host.system.online_cpus < 1) return std::nullopt;
  return run.machine->host.system.online_cpus;
}

std::optional<double> allowed_cpus(const model::Run& run) {
  auto allowed = online_cpus(run);
  if (!allowed) return std::nullopt;
  const auto affinity = base::number_list(run.machine->host.system.cpus).size();
  if (affinity > 0) allowed = std::min(*allowed, static_cast<double>(affinity));
  const auto& quota = run.machine->host.cpu_quota;
  return quota ? std::min(*allowed, *quota) : *allowed;
}

namespace {

/// A sample tells about the time since the one before it.
std::vector<const model::HostSample*> samples_while_stepping(const Evidence& evidence) {
  std::vector<const model::HostSample*> all;
  std::vector<const model::HostSample*> stepping_ones;
  const auto range = evidence.trainer == nullptr ? Interval{} : stepping(*evidence.trainer, evidence.steps);
  for (const auto& sample : evidence.run.host_samples) {
    if (!all.empty() && all.back()->at_ns >= range.start_ns && sample.at_ns <= range.end_ns)
      stepping_ones.push_back(&sample);
    all.push_back(&sample);
  }
  return stepping_ones.empty() ? all : stepping_ones;
}

}  // namespace

HostLoad host_load(const Evidence& evidence) {
  HostLoad load;
  const auto samples = samples_while_stepping(evidence);
  if (samples.empty()) return load;
  for (const auto* sample : samples) {
    load.busy += sample->cpus_busy;
    load.training += sample->cpus_training;
    load.stolen += sample->stolen;
    load.iowait += sample->iowait;
    load.pressure += sample->cpu_pressure;
    load.throttled += sample->throttled;
    load.swap_in_bytes += static_cast<double>(sample->swap_in_bytes);
  }
  const auto count = static_cast<double>(samples.size());
  for (auto* sum : {&load.busy, &load.training, &load.stolen, &load.iowait, &load.pressure, &load.throttled})
    *sum /= count;
  load.seconds = static_cast<double>(samples.back()->at_ns - samples.front()->at_ns) / 1e9;
  load.known = true;
  return load;
}

std::string name_of(const TrainedGpu& gpu) {
  return gpu.name.empty() ? "the GPU" : gpu.name;
}

std::optional<double> memory_bytes(const TrainedGpu& gpu) {
  if (gpu.nvml != nullptr && gpu.nvml->memory_total_bytes) return static_cast<double>(*gpu.nvml->memory_total_bytes);
  if (gpu.cuda != nullptr && gpu.cuda->memory_total_bytes > 0) return static_cast<double>(gpu.cuda->memory_total_bytes);
  if (!gpu.peaks || !gpu.peaks->memory_gb) return std::nullopt;
  return *gpu.peaks->memory_gb * 1e9;
}

std::optional<double> multiprocessors(const TrainedGpu& gpu) {
  if (gpu.cuda != nullptr && gpu.cuda->multiprocessors > 0) return gpu.cuda->multiprocessors;
  if (!gpu.peaks) return std::nullopt;
  const auto cards = catalog::gpu_cards();
  const auto at = std::ranges::find(cards, gpu.peaks->card, &catalog::GpuCard::card);
  if (at == cards.end() || at->multiprocessors == 0) return std::nullopt;
  return at->multiprocessors;
}

std::vector<const model::GpuSample*> working_samples(const model::Run& run, const TrainedGpu& gpu) {
  constexpr int kLeastPercent = 10;
  const int index = gpu.run_index.value_or(0);
  std::vector<const model::GpuSample*> samples;
  for (const auto& sample : run.gpu_samples) {
    if (sample.gpu == index && sample.utilization_percent.value_or(0) >= kLeastPercent) samples.push_back(&sample);
  }
  return samples;
}

}  // namespace fullwatt::explain
