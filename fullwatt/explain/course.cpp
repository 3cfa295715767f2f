#include "fullwatt/explain/course.hpp"

#include <algorithm>
#include <numeric>
#include <span>

#include "fullwatt/explain/loader_pace.hpp"
#include "fullwatt/explain/resources.hpp"

namespace fullwatt::explain {
namespace {

constexpr std::size_t kMostPoints = 400;
constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr auto kData = static_cast<std::size_t>(model::Phase::data);

double seconds(std::uint64_t from_ns, std::uint64_t to_ns) {
  return to_ns > from_ns ? static_cast<double>(to_ns - from_ns) / 1e9 : 0;
}

/// The recorder's buckets; for a spool without them each step is one.
std::vector<model::TrendBucket> buckets_of(const model::TrainingProcess& trainer, const Steps& steps) {
  if (!trainer.trend.empty()) return trainer.trend;
  std::vector<model::TrendBucket> buckets;
  for (const auto& step : steps.all) {
    model::TrendBucket bucket{.start_ns = step.start_ns, .end_ns = step.end_ns, .steps = 1, .samples = step.samples};
    bucket.plain_steps = step.plain() ? 1 : 0;
    bucket.plain_sum_ns = step.plain() ? step.end_ns - step.start_ns : 0;
    for (std::size_t i = 0; i < model::kPhaseCount; ++i) {
      bucket.phase_ns[i] = static_cast<std::uint64_t>(step.phase_ms[i] * 1e6);
    }
    buckets.push_back(bucket);
  }
  return buckets;
}

void merge(model::TrendBucket& into, const model::TrendBucket& next) {
  into.end_ns = next.end_ns;
  into.steps += next.steps;
  into.plain_steps += next.plain_steps;
  into.plain_sum_ns += next.plain_sum_ns;
  for (std::size_t i = 0; i < into.phase_ns.size(); ++i) into.phase_ns[i] += next.phase_ns[i];
}

std::vector<model::TrendBucket> at_most(std::vector<model::TrendBucket> buckets, std::size_t most) {
  const std::size_t each = (buckets.size() + most - 1) / most;
  if (each <= 1) return buckets;
  std::vector<model::TrendBucket> merged;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    if (i % each == 0) {
      merged.push_back(buckets[i]);
    } else {
      merge(merged.back(), buckets[i]);
    }
  }
  return merged;
}

/// The GPU's samples in order, handed out bucket by bucket.
class SampleFeed {
 public:
  SampleFeed(const model::Run& run, const TrainedGpu& gpu) {
    for (const auto& sample : run.gpu_samples) {
      if (sample.gpu == gpu.run_index) samples_.push_back(&sample);
    }
    std::ranges::stable_sort(samples_, {}, &model::GpuSample::at_ns);
  }
  void fill(const model::TrendBucket& bucket, model::TrendPoint& point) {
    double watts = 0;
    double count = 0;
    while (next_ < samples_.size() && samples_[next_]->at_ns < bucket.start_ns) ++next_;
    for (; next_ < samples_.size() && samples_[next_]->at_ns < bucket.end_ns; ++next_) {
      const auto& sample = *samples_[next_];
      if (sample.power_w) {
        watts += *sample.power_w;
        count += 1;
      }
      if (sample.memory_used_bytes) {
        const double gib = static_cast<double>(*sample.memory_used_bytes) / kGib;
        point.memory_gib = std::max(point.memory_gib.value_or(0), gib);
      }
    }
    if (count > 0) point.power_w = watts / count;
  }

 private:
  std::vector<const model::GpuSample*> samples_;
  std::size_t next_ = 0;
};

/// Steps in which only fullwatt did something beside training.
bool disturbed_by_fullwatt(const TrainingStep& step) {
  constexpr unsigned kOwn =
      step_flag::kInTimes | step_flag::kInCauses | step_flag::kSwitching | step_flag::kMeasured | step_flag::kCounting;
  return step.flags != 0 && (step.flags & ~kOwn) == 0;
}

double phase_seconds(const model::TrainingProcess& trainer, const Steps& steps, model::Phase phase) {
  double sum = 0;
  for (const auto& bucket : buckets_of(trainer, steps)) {
    sum += static_cast<double>(bucket.phase_ns[static_cast<std::size_t>(phase)]) / 1e9;
  }
  return sum;
}

/// Evaluation and saving queue work for the GPU that is waited for after their phase has ended: what the steps with
/// them took longer than plain ones counts where it is more.
double seconds_of_more(const model::TrainingProcess& trainer, const Steps& steps, model::Phase phase, unsigned flag) {
  const double told = phase_seconds(trainer, steps, phase);
  constexpr unsigned kOther = step_flag::kEvaluated | step_flag::kSaved | step_flag::kCompiled | step_flag::kSwitching;
  double in_phase = 0;
  double longer = 0;
  for (const auto& step : steps.all) {
    if (!step.has(flag) || step.has(kOther & ~flag)) continue;
    in_phase += step.phase_ms[static_cast<std::size_t>(phase)];
    longer += step.ms() - steps.mean_ms();
  }
  return in_phase > 0 ? told * std::max(1.0, longer / in_phase) : told;
}

/// What the recorded steps took longer than plain ones would have, and the time that reading figures took in others.
/// Waiting for the GPU when a window opens is no loss: the steps before, which left it work, were shorter by as much.
double extra_seconds(const Steps& steps) {
  double extra = 0;
  for (const auto& step : steps.all) {
    const bool only_read = step.flags == step_flag::kMeasured;
    const double own = step.phase_ms[static_cast<std::size_t>(HostPhase::agent)];
    if (disturbed_by_fullwatt(step)) extra += (only_read ? own : step.ms() - steps.mean_ms()) / 1e3;
  }
  for (const auto index : steps.hurried) extra += (steps.all[index].ms() - steps.mean_ms()) / 1e3;
  return std::max(0.0, extra);
}

/// From the steps where they are all there, else from the time the agent gave itself.
double own_seconds(const model::TrainingProcess& trainer, const Steps& steps) {
  const bool complete = !steps.all.empty() && steps.all.front().number <= 4;
  return complete ? extra_seconds(steps) : phase_seconds(trainer, steps, model::Phase::agent);
}

/// Warming up, compiling apart.
double first_steps_seconds(const Steps& steps) {
  double extra = 0;
  for (const auto& step : steps.all) {
    const double compiling = step.phase_ms[static_cast<std::size_t>(HostPhase::compile)];
    if (step.number <= 3) extra += std::max(0.0, step.ms() - compiling - steps.step_ms.median) / 1e3;
  }
  return extra;
}

/// By the watts of each sample, as if they had been drawn since the one before.
double joules_by_power(std::span<const model::GpuSample* const> samples) {
  double joules = 0;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    if (samples[i]->power_w) joules += *samples[i]->power_w * seconds(samples[i - 1]->at_ns, samples[i]->at_ns);
  }
  return joules;
}

/// By the counter of energy, which is read now and then; what was before and after by power.
double joules_of(std::span<const model::GpuSample* const> samples) {
  const auto has_counter = [](const model::GpuSample* sample) { return sample->energy_mj.has_value(); };
  const auto first = std::ranges::find_if(samples, has_counter);
  if (first == samples.end()) return joules_by_power(samples);
  const auto end = std::find_if(samples.rbegin(), samples.rend(), has_counter).base();  // behind the last one
  const auto from = *(*first)->energy_mj;
  const auto to = *(*(end - 1))->energy_mj;
  if (to <= from) return joules_by_power(samples);
  return joules_by_power({samples.begin(), first + 1}) + static_cast<double>(to - from) / 1e3 +
         joules_by_power({end - 1, samples.end()});
}

}  // namespace

std::vector<model::TrendPoint> trend_of(const model::Run& run, const model::TrainingProcess& trainer,
                                        const Steps& steps, const TrainedGpu& gpu) {
  std::vector<model::TrendPoint> points;
  SampleFeed feed(run, gpu);
  const auto buckets = at_most(buckets_of(trainer, steps), kMostPoints);
  for (const auto& bucket : buckets) {
    if (bucket.steps == 0) continue;
    model::TrendPoint point;
    point.at_s = seconds(buckets.front().start_ns, bucket.end_ns);
    const double all_ms = seconds(bucket.start_ns, bucket.end_ns) * 1e3 / static_cast<double>(bucket.steps);
    point.step_ms = bucket.plain_steps > 0
                        ? static_cast<double>(bucket.plain_sum_ns) / 1e6 / static_cast<double>(bucket.plain_steps)
                        : all_ms;
    point.data_ms = static_cast<double>(bucket.phase_ns[kData]) / 1e6 / static_cast<double>(bucket.steps);
    feed.fill(bucket, point);
    points.push_back(point);
  }
  return points;
}

std::vector<model::BetweenSteps> between_steps(const model::TrainingProcess& trainer, const Steps& steps) {
  const auto range = stepping(trainer, steps);
  const double whole = seconds(range.start_ns, range.end_ns);
  std::vector<model::BetweenSteps> between;
  const auto add = [&](const char* id, double spent) {
    if (spent > 0 && whole > 0) between.push_back({id, spent, std::min(1.0, spent / whole)});
  };
  add("evaluation", seconds_of_more(trainer, steps, model::Phase::evaluation, step_flag::kEvaluated));
  add("checkpoint", seconds_of_more(trainer, steps, model::Phase::save, step_flag::kSaved));
  add("compile", phase_seconds(trainer, steps, model::Phase::compile));
  add("first-steps", first_steps_seconds(steps));
  add("fullwatt", own_seconds(trainer, steps));
  return between;
}

double overhead_share(const model::TrainingProcess& trainer, const Steps& steps) {
  const auto range = stepping(trainer, steps);
  const double whole = seconds(range.start_ns, range.end_ns);
  if (whole <= 0) return 0;
  const double hooks = trainer.hook_cost_ns / 1e9 * static_cast<double>(trainer.step_count);
  return std::min(1.0, (hooks + own_seconds(trainer, steps)) / whole);
}

std::optional<double> epoch_left_s(const model::TrainingProcess& trainer, const ProcessFacts& facts,
                                   const Steps& steps) {
  const auto* loader = facts.training_loader();
  if (loader == nullptr || !steps.known()) return std::nullopt;
  const EpochFact* newest = nullptr;
  for (const auto& epoch : facts.epochs) {
    if (epoch.loader == loader->id) newest = &epoch;
  }
  if (newest == nullptr) return std::nullopt;
  const auto batches = newest->batches ? newest->batches : loader->batches;
  if (!batches) return std::nullopt;
  const double each = batches_per_step(trainer, steps);
  double done = 0;
  for (const auto& step : steps.all) done += step.end_ns > newest->at_ns ? each : 0;
  // The oldest step records may be gone.
  if (steps.all.front().end_ns > newest->at_ns) {
    done += seconds(newest->at_ns, steps.all.front().start_ns) * 1e3 / steps.mean_ms() * each;
  }
  const double left = (static_cast<double>(*batches) - done) / each * steps.mean_ms() / 1e3;
  return left > 0 ? std::optional(left) : std::nullopt;
}

std::optional<double> energy_kwh(const model::Run& run, const TrainedGpu& gpu) {
  double joules = 0;
  for (std::size_t i = 0; i < run.info.gpus.size(); ++i) {
    if (!run.info.gpus[i].used && gpu.run_index != static_cast<int>(i)) continue;
    std::vector<const model::GpuSample*> samples;
    for (const auto& sample : run.gpu_samples) {
      if (sample.gpu == static_cast<int>(i)) samples.push_back(&sample);
    }
    std::ranges::stable_sort(samples, {}, &model::GpuSample::at_ns);
    joules += joules_of(samples);
  }
  return joules > 0 ? std::optional(joules / 3.6e6) : std::nullopt;
}

std::optional<double> ceiling_ms(const Steps& steps) {
  if (steps.ceiling.empty()) return std::nullopt;
  const auto begin = steps.ceiling.front().start_ns;
  const auto middle = begin + (steps.ceiling.back().end_ns - begin) / 2;
  std::vector<double> lengths;
  for (const auto& step : steps.ceiling) {
    if (step.start_ns >= middle && step.flags == step_flag::kCeiling) lengths.push_back(step.ms());
  }
  if (lengths.empty()) return std::nullopt;
  std::vector<double> kept;
  for (const auto index : without_outliers(lengths)) kept.push_back(lengths[index]);
  return spread_of(kept).mean;
}

}  // namespace fullwatt::explain
