#include "fullwatt/tune/counted_watts.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fullwatt::tune {
namespace {

/// The counter moves ten times a second (seen on an H200): what it shows is half of that old in the mean.
constexpr double kCounterLagNs = 50e6;
constexpr double kLeastNs = 250e6;
constexpr int kLeastIntervals = 10;
constexpr double kWhole = 0.999;
/// Below this, turns and intervals go together too much to be told apart.
constexpr double kLeastDeterminant = 1e-3;
/// A difference of less than so many of its standard errors may be the counter's: it jumps (200 W from one interval to
/// the next, seen on an H200).
constexpr double kCertain = 2;

/// Between two looks at the counter, by the times that it showed.
struct Interval {
  Stretch at;
  double watts = 0;

  double length_ns() const { return at.to_ns - at.from_ns; }
  /// How much of it these stretches cover.
  double share(const std::vector<Stretch>& stretches) const {
    double sum = 0;
    for (const auto& stretch : stretches)
      sum += std::max(0.0, std::min(at.to_ns, stretch.to_ns) - std::max(at.from_ns, stretch.from_ns));
    return sum / length_ns();
  }
};

std::vector<Interval> intervals(const std::vector<model::GpuSample>& samples, int gpu) {
  std::vector<Interval> found;
  const model::GpuSample* last = nullptr;
  for (const auto& sample : samples) {
    if (sample.gpu != gpu || !sample.energy_mj) continue;
    const auto* const before = std::exchange(last, &sample);
    if (before == nullptr || sample.at_ns <= before->at_ns || *sample.energy_mj < *before->energy_mj) continue;
    Interval interval{
        .at = {static_cast<double>(before->at_ns) - kCounterLagNs, static_cast<double>(sample.at_ns) - kCounterLagNs}};
    interval.watts = static_cast<double>(*sample.energy_mj - *before->energy_mj) * 1e6 / interval.length_ns();
    found.push_back(interval);
  }
  return found;
}

/// Two unknowns by least squares: each interval's watts are a mixture, by the shares of its time without and with.
class Mixture {
 public:
  void add(double without_share, double with_share, double watts, double weight) {
    without_ += weight * without_share * without_share;
    both_ += weight * without_share * with_share;
    with_ += weight * with_share * with_share;
    without_watts_ += weight * without_share * watts;
    with_watts_ += weight * with_share * watts;
    squares_ += weight * watts * watts;
    weight_ += weight;
    ++count_;
  }
  std::optional<model::TurnWatts> solved() const {
    const auto determinant = without_ * with_ - both_ * both_;
    if (count_ < kLeastIntervals || determinant < kLeastDeterminant * weight_ * weight_) return std::nullopt;
    const model::TurnWatts watts{.without = (without_watts_ * with_ - with_watts_ * both_) / determinant,
                                 .with = (with_watts_ * without_ - without_watts_ * both_) / determinant};
    const auto left = std::max(0.0, squares_ - watts.without * without_watts_ - watts.with * with_watts_);
    const auto error = std::sqrt(left / (count_ - 2) * (without_ + with_ + 2 * both_) / determinant);
    if (std::abs(watts.with - watts.without) < kCertain * error) return std::nullopt;
    return watts;
  }

 private:
  double without_ = 0, both_ = 0, with_ = 0;
  double without_watts_ = 0, with_watts_ = 0, squares_ = 0;
  double weight_ = 0;
  int count_ = 0;
};

}  // namespace

std::optional<double> counted_watts_over(const std::vector<model::GpuSample>& samples, int gpu,
                                         const Stretch& stretch) {
  double energy = 0;
  double length = 0;
  for (const auto& interval : intervals(samples, gpu)) {
    if (interval.share({stretch}) < kWhole) continue;
    energy += interval.watts * interval.length_ns();
    length += interval.length_ns();
  }
  if (length < kLeastNs) return std::nullopt;
  return energy / length;
}

std::optional<model::TurnWatts> counted_turn_watts(const std::vector<model::GpuSample>& samples, int gpu,
                                                   const std::vector<Stretch>& without,
                                                   const std::vector<Stretch>& with) {
  Mixture mixture;
  for (const auto& interval : intervals(samples, gpu)) {
    const auto off = interval.share(without);
    const auto on = interval.share(with);
    if (off + on >= kWhole) mixture.add(off, on, interval.watts, interval.length_ns());
  }
  return mixture.solved();
}

}  // namespace fullwatt::tune
