// The part of tuning that changes the training itself: its batch size, with the user's consent.

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "fullwatt/cli/tuner.hpp"
#include "fullwatt/show/tune_text.hpp"
#include "fullwatt/tune/batch_size.hpp"

namespace fullwatt::cli {
namespace {

double mean_of(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Of the card, all that is used of it; of the host where the CPU trains.
double peak_bytes(const model::Trial& trial) {
  return trial.gpu.memory_bytes.value_or(trial.host_memory_bytes);
}

}  // namespace

bool Tuner::may_change_batch() const {
  return std::ranges::find(options_.allow, "batch") != options_.allow.end();
}

/// The program as it is has no room for its batch: cut into parts it may have. The last start is the answer.
model::Trial Tuner::start_in_parts(model::Trial whole) {
  if (!may_change_batch()) {
    say("the program has no room for its batch; with --allow batch it is tried in parts");
    return whole;
  }
  constexpr int kMostParts = 32;
  for (int parts = 2; parts <= kMostParts && !is_interrupted(); parts *= 2) {
    say(fmt::format("the program has no room for its batch: tries it in {} parts", parts));
    needed_.fixes = {{"accumulation", {{"parts", std::to_string(parts)}}, std::nullopt}};
    auto trial = start({.plan = needed_, .steps = kFirstSteps, .limit = kFirstLimit});
    if (!tune::is_out_of_memory(trial.failure)) return trial;
  }
  needed_.fixes.clear();
  return whole;
}

/// A larger batch on top of the plan, if it is faster by the sample.
void Tuner::try_batches(model::Tuning& tuning) {
  const auto own = own_batch();
  if (own == 0) {
    say("the batch size is left alone: no loader of the program has one");
    return;
  }
  say(fmt::format("looks for a batch size, beginning with {}", own));
  std::map<std::uint64_t, double> ms;
  const auto probe = [&](std::uint64_t batch) -> base::Result<tune::BatchProbe> {
    if (number_ >= kMostStarts || seconds_left() < last_seconds_)
      return base::fail(base::Error::Kind::unavailable, "there was no time left");
    const auto trial = measure_batch(tuning.plan, own, batch);
    if (is_interrupted()) return base::fail(base::Error::Kind::unavailable, "interrupted");
    if (!trial.failure.empty()) return base::fail(base::Error::Kind::unavailable, trial.failure);
    ms[batch] = mean_of(trial.step_ms);
    const auto rate = static_cast<double>(batch) / ms[batch] * 1e3;
    say(fmt::format("batch {}: {:.0f} samples/s, {:.2f} GB", batch, rate, peak_bytes(trial) / 1e9));
    return tune::BatchProbe{batch, static_cast<std::uint64_t>(peak_bytes(trial)), rate};
  };
  const auto choice = tune::find_batch(probe, own, usable_memory());
  if (!choice) return;
  for (const auto& tried : choice->probes)
    tuning.batches.push_back(
        {tried.batch, tried.predicted_bytes, static_cast<double>(tried.peak_bytes), tried.samples_per_second});
  model::TriedFix tried;
  tried.fix = batch_fix(own, std::max(choice->batch, 2 * own));
  tried.why = "a larger batch may use the machine better";
  tried.kept = choice->batch > own;
  if (tried.kept) {
    tried.before_ms = ms[own];
    tried.after_ms = ms[choice->batch] * static_cast<double>(own) / static_cast<double>(choice->batch);
    tried.fix.speedup = tried.speedup();
    tuning.plan.fixes.push_back(tried.fix);
    tuning.after_ms = *tried.after_ms;
  } else {
    tried.reason = choice->probes.size() > 1 ? choice->why : "a larger one would not fit";
  }
  fmt::print(stderr, "{}", show::tried_line(tried, style_));
  tuning.tried.push_back(std::move(tried));
}

/// As many samples with one batch as with another.
model::Trial Tuner::measure_batch(model::Plan plan, std::uint64_t own, std::uint64_t batch) {
  auto steps = steps_;
  if (batch != own) {
    plan.fixes.push_back(batch_fix(own, batch));
    steps = std::max<std::uint64_t>(kFirstSteps, steps_ * own / batch);
  }
  auto trial = start({.plan = plan, .steps = steps, .limit = limit_ + kLongerLimit});
  const auto state = std::ranges::find(trial.fixes, "batch-size", &model::FixState::id);
  if (batch != own && trial.failure.empty() && (state == trial.fixes.end() || state->state != "in-force"))
    trial.failure = state == trial.fixes.end() ? "it was not applied" : state->text;
  return trial;
}

/// The learning rate grows with the batch: as its root for those that divide by the gradients' size, like Adam, else in
/// proportion.
model::PlannedFix Tuner::batch_fix(std::uint64_t own, std::uint64_t batch) const {
  const auto growth = static_cast<double>(batch) / static_cast<double>(own);
  const bool proportional =
      std::ranges::any_of(plain_facts_.optimizers, [](const auto& optimizer) { return optimizer.class_name == "SGD"; });
  return {"batch-size",
          {{"size", std::to_string(batch)},
           {"learning_rate", fmt::format("{:.4g}", proportional ? growth : std::sqrt(growth))}},
          std::nullopt};
}

std::uint64_t Tuner::own_batch() const {
  const auto* loader = plain_facts_.training_loader();
  return loader != nullptr ? loader->batch_size.value_or(0) : 0;
}

std::uint64_t Tuner::usable_memory() const {
  std::uint64_t card = 0;
  for (const auto& gpu : plain_facts_.gpus) card = std::max(card, gpu.memory_bytes.value_or(0));
  return card > 0 ? tune::usable_bytes(card) : free_memory() / 2;
}

}  // namespace fullwatt::cli
