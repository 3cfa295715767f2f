#include "fullwatt/explain/samples.hpp"

#include <algorithm>

namespace fullwatt::explain {

PhaseSamples::PhaseSamples(const model::TrainingProcess& process, const std::vector<PhasePiece>& phases,
                           const Interval& range) {
  auto piece = phases.begin();
  auto at = std::ranges::lower_bound(process.samples, range.start_ns, {}, &model::LineSample::at_ns);
  for (; at != process.samples.end() && at->at_ns < range.end_ns; ++at) {
    while (piece != phases.end() && piece->range.end_ns <= at->at_ns) ++piece;
    if (piece == phases.end()) break;
    samples_[static_cast<std::size_t>(piece->phase)].push_back(*at);
  }
}

const model::LineSample* PhaseSamples::next(HostPhase phase, std::uint64_t time) const {
  const auto& samples = in(phase);
  const auto at = std::ranges::lower_bound(samples, time, {}, &model::LineSample::at_ns);
  return at == samples.end() ? nullptr : &*at;
}

const model::LineSample* PhaseSamples::nearest(HostPhase phase, std::uint64_t time) const {
  const auto& samples = in(phase);
  const auto after = std::ranges::lower_bound(samples, time, {}, &model::LineSample::at_ns);
  if (after == samples.end()) return samples.empty() ? nullptr : &samples.back();
  if (after == samples.begin()) return &*after;
  const auto before = std::prev(after);
  return time - before->at_ns <= after->at_ns - time ? &*before : &*after;
}

}  // namespace fullwatt::explain
