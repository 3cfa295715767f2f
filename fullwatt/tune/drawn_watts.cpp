#include "fullwatt/tune/drawn_watts.hpp"

#include <algorithm>
#include <cmath>

#include "fullwatt/tune/mean.hpp"

namespace fullwatt::tune {
namespace {

/// A sample shows what was drawn up to so long before it (seen on an H200: 30 ms after a load begins or ends).
constexpr double kLagNs = 30e6;
constexpr int kLeastSamples = 5;  ///< of a start
constexpr std::size_t kLeastPairs = 3;
/// How well the difference has to be known, where it may be none: to this share of what is drawn.
constexpr double kWell = 0.05;

/// The mean of the samples that show nothing but this stretch.
struct Drawn {
  double watts = 0;
  int samples = 0;
};

Drawn drawn_in(const model::Run& run, int gpu, const Stretch& stretch) {
  Drawn drawn;
  for (const auto& sample : run.power_samples) {
    const auto at = static_cast<double>(sample.at_ns);
    if (sample.gpu != gpu || at - kLagNs < stretch.from_ns || at > stretch.to_ns) continue;
    drawn.watts += (sample.watts - drawn.watts) / ++drawn.samples;
  }
  return drawn;
}

std::optional<model::TurnWatts> sampled_turn_watts(const model::Run& run, int gpu, const std::vector<Stretch>& without,
                                                   const std::vector<Stretch>& with) {
  std::vector<double> off_watts;
  std::vector<double> on_watts;
  std::vector<double> added;
  for (std::size_t i = 0; i < std::min(without.size(), with.size()); ++i) {
    const auto off = drawn_in(run, gpu, without[i]);
    const auto on = drawn_in(run, gpu, with[i]);
    if (off.samples == 0 || on.samples == 0) continue;
    off_watts.push_back(off.watts);
    on_watts.push_back(on.watts);
    added.push_back(on.watts - off.watts);
  }
  if (added.size() < kLeastPairs) return std::nullopt;
  const model::TurnWatts watts{.without = mean(off_watts), .with = mean(on_watts)};
  const auto doubt = half_interval(added);
  const bool is_certain = std::abs(watts.with - watts.without) > doubt;
  if (!is_certain && doubt > kWell * std::max(watts.without, watts.with)) return std::nullopt;
  return watts;
}

}  // namespace

std::optional<double> watts_over(const model::Run& run, int gpu, const Stretch& stretch) {
  if (const auto drawn = drawn_in(run, gpu, stretch); drawn.samples >= kLeastSamples) return drawn.watts;
  return counted_watts_over(run.gpu_samples, gpu, stretch);
}

std::optional<model::TurnWatts> turn_watts(const model::Run& run, int gpu, const std::vector<Stretch>& without,
                                           const std::vector<Stretch>& with) {
  const auto has_samples = std::ranges::any_of(run.power_samples, [&](const auto& one) { return one.gpu == gpu; });
  return has_samples ? sampled_turn_watts(run, gpu, without, with)
                     : counted_turn_watts(run.gpu_samples, gpu, without, with);
}

}  // namespace fullwatt::tune
