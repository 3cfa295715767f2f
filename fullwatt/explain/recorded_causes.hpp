#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "fullwatt/explain/gpu_time.hpp"
#include "fullwatt/explain/sites.hpp"
#include "fullwatt/explain/timeline.hpp"
#include "fullwatt/explain/windows.hpp"

namespace fullwatt::explain {

/// A window of causes, ready to be read.
struct CausesWindow {
  StepWindow window;
  std::vector<HostSegment> host;               ///< without gaps
  std::vector<model::GpuActivity> activities;  ///< of the main GPU, by start
  /// When each call that put something on the GPU began and ended, by correlation.
  std::unordered_map<std::uint64_t, Interval> launches;

  double steps() const { return window.steps(); }
  /// What the host was at; null outside of the window.
  const HostSegment* at(std::uint64_t time) const;
  /// The segment from which an activity was launched; null when that is not known.
  const HostSegment* launched_from(const model::GpuActivity& activity) const;
};

/// Everything that the windows of causes tell, read once.
struct RecordedCauses {
  Sites sites;
  std::vector<CausesWindow> windows;

  double steps() const;
  /// Mean length of a step in them.
  double step_ms() const;
  /// Mean of a step's host time that fulfils a condition.
  template <class Condition>
  double mean_ms(Condition condition) const {
    double sum = 0;
    for (const auto& window : windows) {
      for (const auto& segment : window.host) {
        if (condition(segment)) sum += static_cast<double>(segment.range.length_ns()) / 1e6;
      }
    }
    return windows.empty() ? 0 : sum / steps();
  }
};

RecordedCauses read_causes(const model::TrainingProcess& process, const ProcessFacts& facts, const Steps& steps,
                           int device);

}  // namespace fullwatt::explain
