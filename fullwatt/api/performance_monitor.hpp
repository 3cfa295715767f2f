#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "fullwatt/api/utilization_metrics.hpp"

namespace fullwatt::api {

/// A training since it was last asked.
struct TrainingFigures {
  std::uint64_t step = 0;   ///< that are done, in all
  std::uint64_t steps = 0;  ///< since it was last asked
  double seconds = 0;       ///< since then
  double samples_per_second = 0;
  double step_ms = 0;
  std::optional<double> loss;  ///< the mean; absent where no step was made
  UtilizationMetrics gpu;      ///< of the GPU that trains
};

/// Tells how a training goes. Steps are only counted, and their losses added up on the device: it alone waits, when it
/// is asked. To be asked on the thread that trains.
class PerformanceMonitor {
 public:
  PerformanceMonitor(PerformanceMonitor&&) noexcept;
  PerformanceMonitor& operator=(PerformanceMonitor&&) noexcept;
  ~PerformanceMonitor();

  TrainingFigures figures();

  struct State;
  explicit PerformanceMonitor(std::unique_ptr<State> state);

 private:
  std::unique_ptr<State> state_;
};

}  // namespace fullwatt::api
