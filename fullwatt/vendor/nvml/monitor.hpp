#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fullwatt/base/error.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::vendor::nvml {

/// NVML kept open, for figures many times a second. Calls may hang with a broken driver: ask on a thread that nobody
/// waits for.
class Monitor {
 public:
  static base::Result<std::unique_ptr<Monitor>> open(const std::string& library_name = "libnvidia-ml.so.1");
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  const std::vector<model::RunGpu>& gpus() const;
  /// What can be asked ten times a second. `gpu` is an index into gpus().
  model::GpuSample sample(std::size_t gpu) const;
  /// PCIe traffic: NVML itself measures for 20 ms each way.
  void add_traffic(model::GpuSample& sample) const;
  /// The processes that compute on it.
  std::vector<int> processes(std::size_t gpu) const;

 private:
  struct Library;
  explicit Monitor(std::unique_ptr<Library> library);

  std::unique_ptr<Library> library_;
};

}  // namespace fullwatt::vendor::nvml
