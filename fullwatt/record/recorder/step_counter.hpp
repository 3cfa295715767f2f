#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "fullwatt/record/spool_writer.hpp"

namespace fullwatt::record {

/// A step that only has to be counted.
struct SteadyStep {
  std::uint64_t end_ns;
  std::uint64_t optimizer_ns;
  std::uint64_t data_ns;
  std::uint64_t backward_ns;
  std::uint64_t samples;
  std::uint32_t optimizer;
};

/// Steady steps that were not written yet: writing finds the processor's caches cold, so that sixteen at once cost
/// little more than one. All of them end within fifty milliseconds.
class PendingSteps {
 public:
  static constexpr std::size_t kMost = 16;
  static constexpr std::uint64_t kLongestNs = 50'000'000;

  /// Tells whether it is time to write them.
  bool add(const SteadyStep& step) {
    steps_[count_++] = step;
    return count_ >= limit_ || step.end_ns - steps_[0].end_ns >= kLongestNs;
  }
  std::span<const SteadyStep> steps() const { return {steps_.data(), count_}; }
  /// They are written; as many may be gathered now.
  void clear(std::uint64_t limit) {
    count_ = 0;
    limit_ = std::min<std::uint64_t>(limit, kMost);
  }

 private:
  std::size_t count_ = 0;
  std::size_t limit_ = 1;
  std::array<SteadyStep, kMost> steps_{};
};

/// Gathers what happens between two optimiser steps and writes it down when the second one ends.
class StepCounter {
 public:
  void phase(Phase phase, std::uint64_t duration_ns) {
    phase_ns_[static_cast<std::size_t>(phase)].fetch_add(duration_ns, std::memory_order_relaxed);
  }
  void samples(std::uint64_t count) { samples_.fetch_add(count, std::memory_order_relaxed); }
  void flag(std::uint32_t flags) { flags_.fetch_or(flags, std::memory_order_relaxed); }
  /// The step ends at `now_ns`. Returns it as it was written.
  Step finish(SpoolWriter& spool, std::uint32_t optimizer, std::uint64_t now_ns);

 private:
  void add_to_trend(SpoolWriter& spool, const Step& step, std::uint64_t start_ns);

  std::array<std::atomic<std::uint64_t>, kPhases> phase_ns_{};
  std::atomic<std::uint64_t> samples_{0};
  std::atomic<std::uint32_t> flags_{0};
  std::uint64_t last_end_ns_ = 0;
  std::uint64_t count_ = 0;
};

/// Adds a step of that length to a bucket.
void add_to_bucket(Trend& bucket, const Step& step, std::uint64_t start_ns);
/// Makes the first half of the buckets out of all of them, two in one.
void merge_neighbours(Trend* buckets, std::size_t count);

}  // namespace fullwatt::record
