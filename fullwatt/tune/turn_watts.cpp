#include "fullwatt/tune/turn_watts.hpp"

#include <algorithm>
#include <utility>

namespace fullwatt::tune {
namespace {

/// The counter moves ten times a second (seen on an H200): what it shows is half of that old in the mean.
constexpr double kCounterLagNs = 50e6;
constexpr int kLeastIntervals = 10;
constexpr double kWhole = 0.999;
/// Below this, turns and intervals go together too much to be told apart.
constexpr double kLeastDeterminant = 1e-3;

double overlap_ns(const std::vector<Stretch>& stretches, double from, double to) {
  double sum = 0;
  for (const auto& stretch : stretches)
    sum += std::max(0.0, std::min(to, stretch.to_ns) - std::max(from, stretch.from_ns));
  return sum;
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
    weight_ += weight;
    ++count_;
  }
  std::optional<model::TurnWatts> solved() const {
    const auto determinant = without_ * with_ - both_ * both_;
    if (count_ < kLeastIntervals || determinant < kLeastDeterminant * weight_ * weight_) return std::nullopt;
    return model::TurnWatts{.without = (without_watts_ * with_ - with_watts_ * both_) / determinant,
                            .with = (with_watts_ * without_ - without_watts_ * both_) / determinant};
  }

 private:
  double without_ = 0, both_ = 0, with_ = 0;
  double without_watts_ = 0, with_watts_ = 0;
  double weight_ = 0;
  int count_ = 0;
};

}  // namespace

std::optional<model::TurnWatts> turn_watts(const std::vector<model::GpuSample>& samples, int gpu,
                                           const std::vector<Stretch>& without, const std::vector<Stretch>& with) {
  Mixture mixture;
  const model::GpuSample* last = nullptr;
  for (const auto& sample : samples) {
    if (sample.gpu != gpu || !sample.energy_mj) continue;
    const auto* const before = std::exchange(last, &sample);
    if (before == nullptr || sample.at_ns <= before->at_ns || *sample.energy_mj < *before->energy_mj) continue;
    const auto from = static_cast<double>(before->at_ns) - kCounterLagNs;
    const auto to = static_cast<double>(sample.at_ns) - kCounterLagNs;
    const auto length = to - from;
    const auto share = [&](const auto& stretches) { return overlap_ns(stretches, from, to) / length; };
    if (share(without) + share(with) < kWhole) continue;
    const auto watts = static_cast<double>(*sample.energy_mj - *before->energy_mj) * 1e6 / length;
    mixture.add(share(without), share(with), watts, length);
  }
  return mixture.solved();
}

}  // namespace fullwatt::tune
