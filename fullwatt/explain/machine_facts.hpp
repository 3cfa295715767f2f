#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/explain/evidence.hpp"
#include "fullwatt/explain/trained_gpu.hpp"
#include "fullwatt/model/run.hpp"

/// What several rules ask about the machine a training ran on.
namespace fullwatt::explain {

/// CPUs that the training may use: affinity and quota taken into account.
std::optional<double> allowed_cpus(const model::Run& run);
/// CPUs of the machine that are switched on.
std::optional<double> online_cpus(const model::Run& run);

/// Means of the host's samples while the training made steps; where there are none, of all.
struct HostLoad {
  double busy = 0;      ///< CPUs, of the whole machine
  double training = 0;  ///< CPUs of the training's processes
  double stolen = 0;    ///< CPUs that the hypervisor gave to others
  double iowait = 0;
  double pressure = 0;       ///< share of the time in which something waited for a CPU
  double throttled = 0;      ///< share of the time
  double swap_in_bytes = 0;  ///< in all
  double seconds = 0;
  bool known = false;
};
HostLoad host_load(const Evidence& evidence);

/// Its name, or "the GPU" where that is not known.
std::string name_of(const TrainedGpu& gpu);
std::optional<double> memory_bytes(const TrainedGpu& gpu);
std::optional<double> multiprocessors(const TrainedGpu& gpu);

/// Samples of the GPU trained on that were taken while it worked.
std::vector<const model::GpuSample*> working_samples(const model::Run& run, const TrainedGpu& gpu);

}  // namespace fullwatt::explain
