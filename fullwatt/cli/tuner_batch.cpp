// The part of tuning that changes the training itself: its batch size, with the user's consent.

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "fullwatt/cli/tuner.hpp"
#include "fullwatt/show/tune_text.hpp"

namespace fullwatt::cli {
namespace {

double mean_of(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Whether the batch of the longest samples can be tried, or all are as long.
bool knows_longest(const std::optional<model::SampleLengths>& lengths) {
  constexpr std::uint64_t kEnough = 64;  // of one length are taken for all
  if (!lengths || lengths->read == 0) return false;
  if (!lengths->varies) return lengths->read >= std::min(lengths->of, kEnough);
  return lengths->read == lengths->of && !lengths->longest.empty();
}

bool ran_out_of_memory(const model::Trial& trial) {
  return tune::is_out_of_memory(trial.failure) || (trial.memory && trial.memory->ran_out);
}

/// Of the card; of the host where the CPU trains.
double training_bytes(const model::Trial& trial) {
  return trial.memory ? trial.memory->training_bytes : trial.host_memory_bytes;
}

std::string told(const tune::BatchPrediction& asked) {
  auto text = fmt::format("tries batch {}", asked.batch);
  if (asked.bytes)
    text += fmt::format(", predicted: {}{:.2f} GB", asked.is_bound ? "at most " : "", *asked.bytes / 1e9);
  if (asked.low && asked.high) text += fmt::format(", {:.0f} to {:.0f} samples/s", *asked.low, *asked.high);
  return text;
}

/// By how much a step of the program's own batch is to get shorter.
model::Prediction gain_of(const tune::BatchPrediction& asked, const tune::BatchProbe& own) {
  if (!asked.low || !asked.high) return {};
  const auto ms = [&](double rate) { return static_cast<double>(own.batch) / rate * 1e3; };
  return {{}, ms(own.samples_per_second) - ms(*asked.low), ms(own.samples_per_second) - ms(*asked.high)};
}

model::TriedBatch told(const tune::BatchProbe& probe) {
  return {.size = probe.batch,
          .predicted_bytes = probe.predicted.told_bytes(),
          .peak_bytes = static_cast<double>(probe.peak_bytes),
          .samples_per_second = probe.samples_per_second,
          .predicted_low = probe.predicted.low,
          .predicted_high = probe.predicted.high,
          .out_of_memory = probe.ran_out};
}

}  // namespace

bool Tuner::may_change_batch() const {
  return std::ranges::find(options_.allow, "batch") != options_.allow.end();
}

/// The program as it is has no room for its batch: cut into parts it may have. Two small ones tell what larger ones
/// take, so that none is tried that is not expected to fit; where there are no figures, each is half of the one before.
/// The start with the fewest parts is the answer.
model::Trial Tuner::start_in_parts(model::Trial whole) {
  if (!may_change_batch()) {
    say("the program has no room for its batch; with --allow batch it is tried in parts");
    return whole;
  }
  constexpr std::uint64_t kMostParts = 32;
  auto best = std::move(whole);
  std::vector<tune::BatchProbe> probes;
  for (auto parts = kMostParts; parts > 1 && !is_interrupted();) {
    say(fmt::format("the program has no room for its batch: tries it in {} parts", parts));
    model::Plan plan;
    plan.fixes = {{"accumulation", {{"parts", std::to_string(parts)}}, std::nullopt}};
    auto trial = start({.plan = plan, .steps = kFirstSteps, .limit = first_limit()});
    if (ran_out_of_memory(trial)) break;
    needed_ = plan;
    best = std::move(trial);
    if (!best.failure.empty()) break;
    const auto batch = static_cast<std::uint64_t>(std::lround(best.samples_per_step));
    if (batch > 0) parts = std::min(parts, batch);  // there are no more than samples
    probes.push_back({.batch = batch / parts, .peak_bytes = static_cast<std::uint64_t>(training_bytes(best))});
    const bool can_tell = best.memory && batch > 0 && probes.size() > 1 && tune::memory_line(probes).sample_bytes > 0;
    const auto fewest = can_tell ? tune::fewest_parts(batch, probes, usable_memory(best)) : parts / 2;
    if (fewest >= parts) break;
    parts = fewest;
  }
  return best;
}

/// A larger batch on top of the plan, if it is faster by the sample.
void Tuner::try_batches(model::Tuning& tuning) {
  const auto own = own_batch();
  if (own == 0) {
    say("the batch size is left alone: no loader of the program has one");
    return;
  }
  say(fmt::format("looks for a batch size, beginning with {}", own));
  say_lengths();
  const auto probe = [&](const auto& asked) { return probe_batch(tuning.plan, asked); };
  const auto choice = tune::find_batch(probe, own, free_memory() / 2);
  if (!choice) {
    say("the batch size is left alone: " + choice.error().message);
    return;
  }
  for (const auto& tried : choice->probes) tuning.batches.push_back(told(tried));
  auto tried = judged(*choice);
  if (tried.kept) {
    tuning.plan.fixes.push_back(tried.fix);
    tuning.after_ms = *tried.after_ms;
  }
  fmt::print(stderr, "{}", show::tried_line(tried, style_));
  tuning.tried.push_back(std::move(tried));
}

/// Where samples differ in length, a short start may not come across the longest batch.
void Tuner::say_lengths() const {
  if (!lengths_ || lengths_->read == 0) {
    say("how long the samples are cannot be told: a fifth of the memory is left for longer batches");
  } else if (!knows_longest(lengths_)) {
    say(fmt::format("of {} samples {} were read in time: a fifth of the memory is left for longer ones", lengths_->of,
                    lengths_->read));
  } else if (lengths_->varies) {
    say("the samples differ in length: each batch size is tried with the longest, too");
  }
}

/// What is expected is said before the start. A batch that runs out of memory is no failure, but goes no further.
base::Result<tune::BatchProbe> Tuner::probe_batch(const model::Plan& plan, const tune::BatchPrediction& asked) {
  const auto over = number_ < kMostStarts ? why_over() : "no start was left";
  if (!over.empty()) return base::fail(base::Error::Kind::unavailable, over);
  if (asked.bytes) say(told(asked));
  const auto trial = measure_batch(plan, own_batch(), asked.batch);
  if (is_interrupted()) return base::fail(base::Error::Kind::unavailable, "interrupted");
  tune::BatchProbe probe{.batch = asked.batch, .usable_bytes = usable_memory(trial)};
  probe.ran_out = ran_out_of_memory(trial);
  if (probe.ran_out) {
    if (asked.bytes)
      say(fmt::format(
          "batch {} ran out of memory, though {:.2f} GB were predicted: others may have taken some; goes back",
          asked.batch, *asked.bytes / 1e9));
    return probe;
  }
  if (!trial.failure.empty()) return base::fail(base::Error::Kind::unavailable, trial.failure);
  probe.samples_per_second = static_cast<double>(asked.batch) / mean_of(trial.step_ms) * 1e3;
  probe.peak_bytes = static_cast<std::uint64_t>(training_bytes(trial));
  if (trial.memory && trial.memory->peak_bytes > trial.memory->training_bytes)
    probe.evaluation_bytes = static_cast<std::uint64_t>(trial.memory->peak_bytes);
  say(fmt::format("batch {}: {:.0f} samples/s, {:.2f} GB", asked.batch, probe.samples_per_second,
                  training_bytes(trial) / 1e9));
  return probe;
}

model::TriedFix Tuner::judged(const tune::BatchChoice& choice) const {
  const auto& own = choice.probes.front();
  const auto larger = std::ranges::find_if(choice.probes, [&](const auto& probe) {
    return choice.batch > own.batch ? probe.batch == choice.batch : probe.batch > own.batch;
  });
  model::TriedFix tried;
  tried.fix = batch_fix(own.batch, larger != choice.probes.end() ? larger->batch : 2 * own.batch);
  tried.why = "a larger batch may use the machine better";
  tried.caveat = batch_norm_caveat();
  tried.kept = choice.batch > own.batch;
  if (larger != choice.probes.end()) tried.predicted = gain_of(larger->predicted, own);
  if (tried.kept) {
    tried.before_ms = static_cast<double>(own.batch) / own.samples_per_second * 1e3;
    tried.after_ms = static_cast<double>(own.batch) / larger->samples_per_second * 1e3;
    tried.fix.speedup = tried.speedup();
  } else {
    tried.reason = larger != choice.probes.end() ? choice.why
                   : choice.stopped.empty()      ? "a larger one would not fit"
                                                 : choice.stopped;
  }
  return tried;
}

std::string Tuner::batch_norm_caveat() const {
  const auto* model = plain_facts_.largest_model();
  if (model == nullptr || !model->batch_norms)
    return "if the model normalises by the batch, its statistics change with it";
  if (*model->batch_norms == 0) return {};
  return fmt::format("the statistics of the model's batch normalisation change with the batch (layers: {:.0f})",
                     *model->batch_norms);
}

/// As many samples with one batch as with another.
model::Trial Tuner::measure_batch(model::Plan plan, std::uint64_t own, std::uint64_t batch) {
  auto steps = steps_;
  if (batch != own) {
    plan.fixes.push_back(batch_fix(own, batch));
    steps = std::max<std::uint64_t>(kFirstSteps, steps_ * own / batch);
  }
  auto trial = start({.plan = plan, .steps = steps, .longest = lengths_, .limit = limit_ + kLongerLimit});
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

/// Of the card that was trained on, as it was at that start; of the host where the CPU trains.
std::uint64_t Tuner::usable_memory(const model::Trial& trial) const {
  if (!trial.memory) return tune::usable_by_tensors(free_memory() / 2, 0, 0, knows_longest(lengths_));
  const auto usable = tune::usable_bytes(static_cast<std::uint64_t>(trial.memory->limit_bytes));
  return tune::usable_by_tensors(usable, trial.memory->peak_bytes, trial.memory->held_bytes, knows_longest(lengths_));
}

}  // namespace fullwatt::cli
