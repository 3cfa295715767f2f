#include "fullwatt/tune/proof.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fullwatt/tune/mean.hpp"

namespace fullwatt::tune {
namespace {

using Verdict = model::LossProof::Verdict;
constexpr std::size_t kLeastSteps = 3;
constexpr int kLeastPairs = 2;
constexpr int kProvingPairs = 5;        ///< fewer show that the loss is worse, but not that it is not
constexpr double kLeastMargin = 0.001;  ///< of the loss: where seeds make no difference, rounding still does

bool is_measured(const model::Trial& trial) {
  return trial.failure.empty() && trial.step_ms.size() >= kLeastSteps && mean(trial.step_ms) > 0;
}

/// How many steps of one trial have as many samples as a step of another: 1 unless the plan changes the batch.
double steps_for_one(const model::Trial& trial, const model::Trial& other) {
  constexpr double kSame = 0.05;  // the last batch of an epoch may be a smaller one
  if (trial.samples_per_step <= 0 || other.samples_per_step <= 0) return 1;
  const auto ratio = other.samples_per_step / trial.samples_per_step;
  return std::abs(ratio - 1) < kSame ? 1 : ratio;
}

double last_loss(const std::vector<double>& losses, std::size_t steps) {
  return mean(std::span(losses).subspan(steps / 2, steps - steps / 2));
}

/// How many steps of a trial have seen as many samples as the first `steps` of another.
std::size_t as_many_samples(const model::Trial& trial, const model::Trial& other, std::size_t steps) {
  const auto wanted = static_cast<std::size_t>(std::llround(static_cast<double>(steps) * steps_for_one(trial, other)));
  return std::min(std::max<std::size_t>(wanted, 1), trial.losses.size());
}

/// Means of neighbours where there are more than a drawing can show.
std::vector<double> thinned(const std::vector<double>& losses) {
  const auto group = losses.size() / model::ProvedPair::kMostLosses + 1;
  std::vector<double> means;
  for (std::size_t i = 0; i + group <= losses.size(); i += group)
    means.push_back(mean(std::span(losses).subspan(i, group)));
  return means;
}

/// The last losses without the plan, and how much higher those with it are.
Verdict judge(const std::vector<double>& before, const std::vector<double>& differences, model::LossProof& proof) {
  proof.margin = std::max(deviation(before), kLeastMargin * std::abs(mean(before)));
  proof.difference = mean(differences);
  const auto half = half_interval(differences);
  proof.low = proof.difference - half;
  proof.high = proof.difference + half;
  if (proof.high <= proof.margin) return Verdict::not_worse;
  return proof.low > proof.margin ? Verdict::worse : Verdict::inconclusive;
}

}  // namespace

model::SpeedProof prove_speed(std::span<const Pair> pairs) {
  std::vector<double> ratios;  // their logarithms: twice as fast and half as fast cancel out
  for (const auto& [before, after] : pairs) {
    if (is_measured(before) && is_measured(after))
      ratios.push_back(std::log(mean(before.step_ms) * steps_for_one(before, after) / mean(after.step_ms)));
  }
  model::SpeedProof proof;
  proof.pairs = static_cast<int>(ratios.size());
  if (ratios.empty()) return proof;
  proof.speedup = std::exp(mean(ratios));
  if (proof.pairs < kLeastPairs) return proof;
  const auto half = half_interval(ratios);
  proof.low = std::exp(mean(ratios) - half);
  proof.high = std::exp(mean(ratios) + half);
  return proof;
}

std::optional<std::pair<double, double>> step_ms(std::span<const Pair> pairs) {
  std::vector<double> without;
  std::vector<double> with;
  for (const auto& [before, after] : pairs) {
    if (!is_measured(before) || !is_measured(after)) continue;
    without.push_back(mean(before.step_ms));
    with.push_back(mean(after.step_ms) * steps_for_one(after, before));
  }
  if (without.empty()) return std::nullopt;
  return std::pair(mean(without), mean(with));
}

std::pair<model::GpuWork, model::GpuWork> gpu_work(std::span<const Pair> pairs) {
  const auto mean = [&](const model::Trial Pair::* side) {
    model::GpuWork work;
    for (auto figure : {&model::GpuWork::watts, &model::GpuWork::utilization_percent, &model::GpuWork::memory_bytes}) {
      double sum = 0;
      int count = 0;
      for (const auto& pair : pairs) {
        const auto& value = (pair.*side).gpu.*figure;
        sum += value.value_or(0);
        count += value ? 1 : 0;
      }
      if (count > 0) work.*figure = sum / count;
    }
    return work;
  };
  return {mean(&Pair::first), mean(&Pair::second)};
}

std::vector<model::ProvedPair> told(std::span<const Pair> pairs) {
  std::vector<model::ProvedPair> all;
  for (const auto& [before, after] : pairs) {
    if (!is_measured(before) || !is_measured(after)) continue;
    all.push_back(
        {before.seed_offset, mean(before.step_ms), mean(after.step_ms), thinned(before.losses), thinned(after.losses)});
  }
  return all;
}

model::LossProof prove_losses(std::span<const Pair> pairs) {
  model::LossProof proof;
  std::size_t steps = SIZE_MAX;
  for (const auto& [before, after] : pairs) {
    if (before.failure.empty() && after.failure.empty())
      steps = std::min({steps, before.losses.size(), as_many_samples(before, after, after.losses.size())});
  }
  if (steps == SIZE_MAX || steps < 2) {
    proof.reason = "no losses were seen";
    return proof;
  }
  proof.steps = steps;
  std::vector<double> befores;
  std::vector<double> differences;
  bool broke = false;
  for (const auto& [before, after] : pairs) {
    if (!before.failure.empty() || !after.failure.empty()) continue;
    const auto without = last_loss(before.losses, steps);
    if (after.losses.empty()) continue;
    const auto with = last_loss(after.losses, as_many_samples(after, before, steps));
    if (!std::isfinite(without)) continue;
    broke = broke || !std::isfinite(with);
    befores.push_back(without);
    differences.push_back(with - without);
  }
  proof.pairs = static_cast<int>(befores.size());
  if (broke) {
    proof.verdict = Verdict::worse;
    proof.reason = "the loss is no number any more";
  } else if (proof.pairs < kLeastPairs) {
    proof.reason = befores.empty() ? "the loss is no number, with the plan or without it" : "there was one pair only";
  } else {
    proof.verdict = judge(befores, differences, proof);
    if (proof.verdict == Verdict::not_worse && proof.pairs < kProvingPairs) proof.verdict = Verdict::inconclusive;
  }
  return proof;
}

}  // namespace fullwatt::tune
