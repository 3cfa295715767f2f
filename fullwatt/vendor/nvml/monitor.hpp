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
  struct Power {
    std::uint64_t at_us = 0;  ///< since 1970
    double watts = 0;
  };

  static base::Result<std::unique_ptr<Monitor>> open(const std::string& library_name = "libnvidia-ml.so.1");
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  const std::vector<model::RunGpu>& gpus() const;
  /// What can be asked ten times a second. `gpu` is an index into gpus().
  model::GpuSample sample(std::size_t gpu) const;
  /// What it drew since then, as far as the driver still knows: on an H200 every 20 ms of the last 2 seconds. None
  /// where it keeps nothing.
  std::vector<Power> power_since(std::size_t gpu, std::uint64_t after_us) const;
  /// The counter of energy: to read it takes 3 ms and more on an H200.
  void add_energy(model::GpuSample& sample) const;
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
