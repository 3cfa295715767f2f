#pragma once

#include <chrono>
#include <memory>

#include "fullwatt/api/utilization_metrics.hpp"

namespace fullwatt::api {

/// Looks at one GPU ten times a second through NVML, on a thread that nobody waits for: a driver that hangs stops the
/// figures, never the program.
class GpuWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// By its PCI address as NVML has it; empty: the only one, or the first.
  explicit GpuWatch(std::string address, std::string library = "libnvidia-ml.so.1");
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  /// Until there are figures or a reason for none, at the longest for this time.
  void wait_for_first(std::chrono::milliseconds limit) const;
  /// Over the time from then to now, as far back as is kept.
  UtilizationMetrics since(Clock::time_point start) const;

 private:
  struct Shared;
  static void watch(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;
};

}  // namespace fullwatt::api
