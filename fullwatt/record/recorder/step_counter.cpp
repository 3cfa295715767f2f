#include "fullwatt/record/recorder/step_counter.hpp"

#include <algorithm>

namespace fullwatt::record {

Step StepCounter::finish(SpoolWriter& spool, std::uint32_t optimizer, std::uint64_t now_ns) {
  Step step{};
  step.number = ++count_;
  step.end_ns = now_ns;
  step.samples = samples_.exchange(0, std::memory_order_relaxed);
  step.optimizer = static_cast<std::uint16_t>(optimizer);
  step.flags = static_cast<std::uint16_t>(flags_.exchange(0, std::memory_order_relaxed));
  for (std::size_t i = 0; i < kPhases; ++i) step.phase_ns[i] = phase_ns_[i].exchange(0, std::memory_order_relaxed);
  spool.step(step);
  spool.header().samples_total.fetch_add(step.samples, std::memory_order_relaxed);
  if (last_end_ns_ != 0) add_to_trend(spool, step, last_end_ns_);
  last_end_ns_ = now_ns;
  return step;
}

void StepCounter::add_to_trend(SpoolWriter& spool, const Step& step, std::uint64_t start_ns) {
  auto& header = spool.header();
  auto count = header.trend_count.load(std::memory_order_relaxed);
  const auto per_bucket = header.trend_steps_per_bucket.load(std::memory_order_relaxed);
  const bool room = count > 0 && spool.trend()[count - 1].steps < per_bucket;
  if (!room && count == header.trend_capacity) {
    merge_neighbours(spool.trend(), count);
    header.trend_steps_per_bucket.store(2 * per_bucket, std::memory_order_relaxed);
    count /= 2;
  }
  if (!room) spool.trend()[count++] = {};
  add_to_bucket(spool.trend()[count - 1], step, start_ns);
  header.trend_count.store(count, std::memory_order_release);
}

void add_to_bucket(Trend& bucket, const Step& step, std::uint64_t start_ns) {
  if (bucket.steps == 0) bucket.start_ns = start_ns;
  bucket.end_ns = step.end_ns;
  bucket.steps += 1;
  bucket.samples += step.samples;
  for (std::size_t i = 0; i < kPhases; ++i) bucket.phase_ns[i] += step.phase_ns[i];
  if (step.flags != 0) return;
  const auto length = step.end_ns - start_ns;
  bucket.plain_min_ns = bucket.plain_steps == 0 ? length : std::min(bucket.plain_min_ns, length);
  bucket.plain_max_ns = std::max(bucket.plain_max_ns, length);
  bucket.plain_sum_ns += length;
  bucket.plain_steps += 1;
}

void merge_neighbours(Trend* buckets, std::size_t count) {
  for (std::size_t i = 0; i + 1 < count; i += 2) {
    auto merged = buckets[i];
    const auto& next = buckets[i + 1];
    merged.end_ns = next.end_ns;
    merged.steps += next.steps;
    merged.samples += next.samples;
    merged.plain_min_ns = merged.plain_steps == 0 ? next.plain_min_ns
                          : next.plain_steps == 0 ? merged.plain_min_ns
                                                  : std::min(merged.plain_min_ns, next.plain_min_ns);
    merged.plain_max_ns = std::max(merged.plain_max_ns, next.plain_max_ns);
    merged.plain_sum_ns += next.plain_sum_ns;
    merged.plain_steps += next.plain_steps;
    for (std::size_t p = 0; p < kPhases; ++p) merged.phase_ns[p] += next.phase_ns[p];
    buckets[i / 2] = merged;
  }
}

}  // namespace fullwatt::record
