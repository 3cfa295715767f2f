#include "fullwatt/explain/steps.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "fullwatt/explain/pace.hpp"

namespace fullwatt::explain {
namespace {

/// Steps until hooks are settled, graphs captured and the batches used up that the loader had made before the first
/// step; of a short run fewer.
constexpr std::uint64_t kLeastWarmUp = 3, kMostWarmUp = 16;
constexpr std::uint64_t kWarmUpPart = 4;
constexpr double kOutlierDeviations = 5;
/// Steps may be left out of the mean while they are at most this share of all.
constexpr double kRareShare = 0.02;
/// A clock ticks and a machine breathes: no step within this share of the median is an outlier.
constexpr double kSameShare = 0.02;
/// A run is looked at in stretches; a few of them may be left out.
constexpr std::size_t kStretches = 10;
constexpr std::size_t kShortestStretch = 4;
constexpr double kSameStretch = 0.15;
constexpr std::ptrdiff_t kMostStrange = 2;

double at_quantile(const std::vector<double>& sorted, double share) {
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const auto above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (position - std::floor(position));
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return at_quantile(values, 0.5);
}

/// Phases may overlap (a collection inside the backward pass): what is too much is taken from the largest.
void fill_phases(const std::array<std::uint64_t, model::kPhaseCount>& sums, TrainingStep& step) {
  double rest = step.ms();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    step.phase_ms[i] = static_cast<double>(sums[i]) / 1e6;
    rest -= step.phase_ms[i];
  }
  step.phase_ms[static_cast<std::size_t>(HostPhase::rest)] = std::max(rest, 0.0);
  if (rest >= 0) return;
  const double sum = step.ms() - rest;
  for (auto& ms : step.phase_ms) ms *= step.ms() / sum;
}

/// How often each optimiser stepped.
std::map<int, std::size_t> frequencies(const model::TrainingProcess& process) {
  std::map<int, std::size_t> found;
  for (const auto& step : process.steps) ++found[step.optimizer];
  return found;
}

/// Of several that step as often, the last in the cycle is the one after which the first of them steps again.
int last_in_cycle(const model::TrainingProcess& process, const std::map<int, std::size_t>& all, std::size_t fewest) {
  const auto often = [&](int optimizer) { return all.at(optimizer) > fewest + fewest / 20 + 1; };
  int last = process.steps.front().optimizer;
  std::map<int, bool> seen;
  for (const auto& step : process.steps) {
    if (often(step.optimizer)) continue;
    if (seen[step.optimizer]) break;
    seen[step.optimizer] = true;
    last = step.optimizer;
  }
  return last;
}

/// Steps that carry no flag but the allowed ones, after the first ones.
std::vector<std::size_t> steps_with(const std::vector<TrainingStep>& all, unsigned allowed) {
  std::vector<std::size_t> found;
  const auto warm_up = std::clamp<std::uint64_t>(all.size() / kWarmUpPart, kLeastWarmUp, kMostWarmUp);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if ((all[i].flags & ~allowed) == 0 && all[i].number > warm_up) found.push_back(i);
  }
  return found;
}

/// The plain steps; in a run too short for any, the least disturbed ones there are.
std::vector<std::size_t> calm_steps(const std::vector<TrainingStep>& all) {
  for (const unsigned allowed : {0U, step_flag::kMeasured, step_flag::kMeasured | step_flag::kInTimes,
                                 step_flag::kMeasured | step_flag::kInTimes | step_flag::kInCauses}) {
    auto found = steps_with(all, allowed);
    if (!found.empty()) return found;
  }
  std::vector<std::size_t> every(all.size());
  std::iota(every.begin(), every.end(), std::size_t{0});
  return every;
}

void average(Steps& steps) {
  const auto count = static_cast<double>(steps.plain.size());
  for (const auto index : steps.plain) {
    const auto& step = steps.all[index];
    steps.samples += static_cast<double>(step.samples) / count;
    for (std::size_t i = 0; i < kHostPhases; ++i) steps.phase_ms[i] += step.phase_ms[i] / count;
  }
  const double sum = std::accumulate(steps.phase_ms.begin(), steps.phase_ms.end(), 0.0);
  if (sum <= 0 || steps.mean_ms() <= 0) return;
  for (auto& ms : steps.phase_ms) ms *= steps.mean_ms() / sum;
}

/// The whole run hurried: its steps are as long as the GPU's work.
void take_gpu_pace(double busy_ms, Steps& steps) {
  steps.plain.swap(steps.hurried);
  average(steps);
  steps.step_ms = {busy_ms, busy_ms, busy_ms, busy_ms, steps.plain.size()};
  const double host = std::accumulate(steps.phase_ms.begin(), steps.phase_ms.end(), 0.0);
  steps.phase_ms[static_cast<std::size_t>(HostPhase::rest)] += std::max(0.0, busy_ms - host);
}

/// Which values are further from the median than five median deviations, and than a share of the median.
std::vector<bool> far_from_median(const std::vector<double>& values, double same_share) {
  const double middle = median(values);
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::abs(value - middle));
  const double limit = std::max(kOutlierDeviations * median(deviations), same_share * middle);
  std::vector<bool> far;
  for (const double deviation : deviations) far.push_back(deviation > limit);
  return far;
}

/// Leaves out stretches of the run that differ as a whole, such as another loop at its end: unlike bursts, which come
/// again and again, they stand at one place.
void drop_strange_stretches(const std::vector<double>& values, std::vector<std::size_t>& kept) {
  if (kept.size() < kStretches * kShortestStretch) return;
  std::vector<double> means(kStretches, 0);
  const auto stretch_of = [&](std::size_t position) { return position * kStretches / kept.size(); };
  std::vector<double> counts(kStretches, 0);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    means[stretch_of(i)] += values[kept[i]];
    counts[stretch_of(i)] += 1;
  }
  for (std::size_t i = 0; i < kStretches; ++i) means[i] /= counts[i];
  const auto far = far_from_median(means, kSameStretch);
  if (std::ranges::count(far, true) > kMostStrange) return;
  std::vector<std::size_t> rest;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!far[stretch_of(i)]) rest.push_back(kept[i]);
  }
  kept = std::move(rest);
}

}  // namespace

int closing_optimizer(const model::TrainingProcess& process) {
  if (process.steps.empty()) return 0;
  const auto all = frequencies(process);
  const auto fewest = std::ranges::min_element(all, {}, [](const auto& item) { return item.second; });
  return last_in_cycle(process, all, fewest->second);
}

std::vector<TrainingStep> training_steps(const model::TrainingProcess& process) {
  std::vector<TrainingStep> steps;
  const int closing = closing_optimizer(process);
  std::array<std::uint64_t, model::kPhaseCount> sums{};
  // Optimisers that take turns, as those of a GAN, see the same samples.
  std::map<int, std::uint64_t> samples;
  TrainingStep open;
  for (const auto& recorded : process.steps) {
    open.flags |= recorded.flags;
    open.samples = std::max(open.samples, samples[recorded.optimizer] += recorded.samples);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += recorded.phase_ns[i];
    if (recorded.optimizer != closing) continue;
    open.number = recorded.number;
    open.end_ns = recorded.end_ns;
    // Where the first one began is not known.
    if (open.start_ns != 0 && open.end_ns > open.start_ns) {
      fill_phases(sums, open);
      steps.push_back(open);
    }
    open = TrainingStep{.start_ns = recorded.end_ns};
    sums = {};
    samples.clear();
  }
  return steps;
}

std::uint64_t count_steps(const model::TrainingProcess& process) {
  const auto closing = std::ranges::count(process.steps, closing_optimizer(process), &model::OptimizerStep::optimizer);
  const auto calls = static_cast<double>(process.steps.size());
  if (closing == 0) return process.step_count;
  return static_cast<std::uint64_t>(
      std::llround(static_cast<double>(process.step_count) * static_cast<double>(closing) / calls));
}

Steps find_steps(const model::TrainingProcess& process, const GpuPace& gpu) {
  Steps steps;
  steps.all = training_steps(process);
  const auto ceiling = std::ranges::find_if(steps.all, [](const auto& step) { return step.has(step_flag::kCeiling); });
  steps.ceiling.assign(ceiling, steps.all.end());
  steps.all.erase(ceiling, steps.all.end());
  const auto settled = settle(steps.all, gpu);
  auto candidates = calm_steps(steps.all);
  std::erase_if(candidates, [&](std::size_t index) {
    if (settled.hurried[index]) steps.hurried.push_back(index);
    return settled.hurried[index];
  });
  if (candidates.empty() && !steps.hurried.empty()) {
    take_gpu_pace(gpu.busy_ms, steps);
    return steps;
  }
  std::vector<double> lengths;
  for (const auto index : candidates) lengths.push_back(settled.ms[index]);
  std::vector<double> kept;
  for (const auto index : without_outliers(lengths)) {
    steps.plain.push_back(candidates[index]);
    kept.push_back(lengths[index]);
  }
  steps.step_ms = spread_of(kept);
  steps.disturbed = !steps.plain.empty() && !steps.all[steps.plain.front()].plain();
  average(steps);
  return steps;
}

model::Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.median = at_quantile(values, 0.5),
          .mean = sum / static_cast<double>(values.size()),
          .p05 = at_quantile(values, 0.05),
          .p95 = at_quantile(values, 0.95),
          .count = values.size()};
}

std::vector<std::size_t> without_outliers(const std::vector<double>& values) {
  std::vector<std::size_t> kept(values.size());
  std::iota(kept.begin(), kept.end(), std::size_t{0});
  if (values.empty()) return kept;
  const auto far = far_from_median(values, kSameShare);
  const auto rare = std::max(1.0, kRareShare * static_cast<double>(values.size()));
  if (static_cast<double>(std::ranges::count(far, true)) <= rare) {
    std::erase_if(kept, [&](std::size_t index) { return far[index]; });
  }
  drop_strange_stretches(values, kept);
  return kept;
}

}  // namespace fullwatt::explain
