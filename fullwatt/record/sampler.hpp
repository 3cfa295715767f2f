#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/record/samples.hpp"

namespace fullwatt::vendor::nvml {
class Monitor;
}

namespace fullwatt::record {

/// Watches GPUs and host while a training runs, on threads of its own. What is slow (PCIe traffic, the list of
/// processes) is asked off the tick. A driver that hangs stops the figures, never the program: nobody joins these
/// threads.
class Sampler {
 public:
  struct Status {
    std::vector<model::RunGpu> gpus;
    std::string reason;                          ///< why there are no GPU figures; empty when there are
    std::optional<model::GpuSample> newest_gpu;  ///< of the GPU that the training uses, else of the first
    std::optional<model::HostSample> newest_host;
    std::vector<int> tree;  ///< the training's processes
  };

  enum class Detail { usual, power };  ///< `power`: also all that the driver keeps of it

  /// Begins at once; writes `file` every few seconds.
  Sampler(int root_pid, std::string file, Detail detail = Detail::usual);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  Status status() const;
  /// Stops ticking and writes the file a last time.
  void stop();

 private:
  struct Shared;
  static void watch_gpus(const std::shared_ptr<Shared>& shared);
  static void follow_power(Shared& shared, const vendor::nvml::Monitor& monitor);
  static void watch_host(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
};

}  // namespace fullwatt::record
