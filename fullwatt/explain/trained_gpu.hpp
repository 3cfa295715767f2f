#pragma once

#include <optional>
#include <string>

#include "catalog/gpus.hpp"

#include "fullwatt/explain/facts.hpp"
#include "fullwatt/explain/gpu_time.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// The GPU that was trained on, under all of its names. What is not known is empty.
struct TrainedGpu {
  std::string name;
  std::string uuid;              ///< with NVML's "GPU-"
  std::string capability;        ///< "9.0"
  std::optional<int> run_index;  ///< in RunInfo::gpus, as the samples count
  const model::NvmlDevice* nvml = nullptr;
  const model::CudaDevice* cuda = nullptr;
  std::optional<catalog::GpuPeaks> peaks;

  bool known() const { return !name.empty() || run_index || nvml != nullptr; }
};
TrainedGpu find_trained_gpu(const model::Run& run, const ProcessFacts& facts, const GpuTime& time);

}  // namespace fullwatt::explain
