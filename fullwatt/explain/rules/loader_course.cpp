// What the loader costs over epochs, and how the data is stored.

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "fullwatt/explain/machine_facts.hpp"
#include "fullwatt/explain/rules/lines.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

constexpr auto kData = static_cast<std::size_t>(HostPhase::data);

/// The starts of the training loader's epochs, in order.
std::vector<std::uint64_t> epoch_starts(const Case& examined) {
  std::vector<std::uint64_t> starts;
  const auto* loader = examined.facts().training_loader();
  if (loader == nullptr) return starts;
  for (const auto& epoch : examined.facts().epochs) {
    if (epoch.loader == loader->id) starts.push_back(epoch.at_ns);
  }
  std::ranges::sort(starts);
  return starts;
}

/// What the first step of an epoch waits longer for its data than the others, for each epoch but the first.
std::vector<double> restart_costs(const Case& examined, const std::vector<std::uint64_t>& starts) {
  std::vector<double> waits;
  for (const auto index : examined.evidence.steps.plain)
    waits.push_back(examined.evidence.steps.all[index].phase_ms[kData]);
  const double usual = spread_of(waits).median;
  std::vector<double> costs;
  for (std::size_t i = 1; i < starts.size(); ++i) {
    const auto& steps = examined.evidence.steps.all;
    const auto first = std::ranges::find_if(steps, [&](const TrainingStep& step) { return step.end_ns > starts[i]; });
    if (first != steps.end() && first->start_ns <= starts[i])
      costs.push_back(std::max(0.0, first->phase_ms[kData] - usual));
  }
  return costs;
}

double steps_of_epoch(const Case& examined, const std::vector<std::uint64_t>& starts) {
  const auto& steps = examined.evidence.steps.all;
  const auto inside = [&](const TrainingStep& step) {
    return step.end_ns > starts.front() && step.end_ns <= starts.back();
  };
  const auto count = static_cast<double>(std::ranges::count_if(steps, inside));
  return count / static_cast<double>(starts.size() - 1);
}

/// Workers that are started anew for each epoch.
struct Restarts {
  double ms = 0;     ///< one of them
  double steps = 0;  ///< of an epoch
};

std::optional<Restarts> worker_restarts(const Case& examined) {
  const auto* loader = examined.facts().training_loader();
  const auto starts = epoch_starts(examined);
  if (loader == nullptr || loader->num_workers.value_or(0) == 0 || loader->persistent_workers != false ||
      starts.size() < 2 || examined.facts().has_in_force("sample-cache"))
    return std::nullopt;
  const auto costs = restart_costs(examined, starts);
  const double steps = steps_of_epoch(examined, starts);
  if (costs.empty() || steps < 1) return std::nullopt;
  return Restarts{spread_of(costs).median, steps};
}

/// What of a step goes into beginning the loader anew for each batch, where that is done: its workers start for one
/// batch of theirs, and are ended again.
struct Beginnings {
  double of_step = 0;  ///< how many
  double ms = 0;
};

std::optional<Beginnings> beginnings(const Case& examined) {
  constexpr double kOften = 0.25;  // of a step
  const auto* loader = examined.facts().training_loader();
  if (loader == nullptr || examined.step_ms() <= 0 || examined.facts().has_in_force("sample-cache"))
    return std::nullopt;
  std::vector<IteratorsFact> seen;
  std::ranges::copy_if(examined.facts().iterators, std::back_inserter(seen),
                       [&](const IteratorsFact& fact) { return fact.loader == loader->id; });
  if (seen.size() < 2) return std::nullopt;
  const auto& last = seen.back();
  const auto& before = seen[seen.size() - 2];
  const double steps = static_cast<double>(last.at_ns - before.at_ns) / 1e6 / examined.step_ms();
  const double given_up = (last.begun - last.ended) - (before.begun - before.ended);
  if (steps <= 0 || given_up < kOften * steps) return std::nullopt;
  const auto& work = examined.loader;
  const double made = work.batch_ms * work.batches_of_step;
  const double ms = work.workers > 0 ? work.gain_with(work.workers) : work.known() ? work.wait_ms - made : 0;
  return Beginnings{given_up / steps, std::clamp(ms, 0.0, work.wait_ms)};
}

Matches begun_each_step(const Case& examined) {
  const auto found = beginnings(examined);
  if (!found) return {};
  const auto* loader = examined.facts().training_loader();
  Match match;
  match.near({main_line(examined, cause::kDataWait), loader->site});
  match.costs(found->ms, found->ms, examined.step_ms());
  match.fact("workers", std::to_string(loader->num_workers.value_or(0)));
  return {match.saw("iterators made", number_text(found->of_step) + " a step", place_of(loader->site))
              .saw("waiting for data",
                   ms_text(examined.loader.wait_ms) + " ms of " + ms_text(examined.step_ms()) + " ms", "steps")};
}

Matches respawned(const Case& examined) {
  const auto restarts = worker_restarts(examined);
  if (!restarts) return {};
  const auto* loader = examined.facts().training_loader();
  // Even workers that stay have to make the first batch.
  const double gain = std::max(0.0, restarts->ms - examined.loader.batch_ms) / restarts->steps;
  Match match;
  match.at(loader->site).costs(restarts->ms / restarts->steps, gain, examined.step_ms());
  match.fact("workers", std::to_string(*loader->num_workers))
      .fact("seconds", seconds_text(restarts->ms / 1e3))
      .fact("count", number_text(restarts->steps));
  return {match.saw("persistent_workers", "false", place_of(loader->site))
              .saw("first batch of an epoch", ms_text(restarts->ms) + " ms later than others", "steps")};
}

/// Mean wait for data of the steps between two moments.
std::vector<double> waits(const Case& examined, std::uint64_t from, std::uint64_t until) {
  std::vector<double> found;
  for (const auto& step : examined.evidence.steps.all) {
    if (step.end_ns > from && step.end_ns <= until) found.push_back(step.phase_ms[kData]);
  }
  return found;
}

double disk_bytes(const Case& examined, std::uint64_t from, std::uint64_t until) {
  double bytes = 0;
  for (const auto& sample : examined.evidence.run.host_samples) {
    if (sample.at_ns > from && sample.at_ns <= until) bytes += static_cast<double>(sample.disk_read_bytes);
  }
  return bytes;
}

Matches cold(const Case& examined) {
  const auto starts = epoch_starts(examined);
  if (starts.size() < 3) return {};
  const auto first = waits(examined, starts[0], starts[1]);
  const auto later = waits(examined, starts[1], UINT64_MAX);
  if (first.size() < 5 || later.size() < 5) return {};
  const double cold_ms = spread_of(first).mean;
  const double warm_ms = spread_of(later).mean;
  const bool read_more =
      disk_bytes(examined, starts[0], starts[1]) > 2 * disk_bytes(examined, starts[1], starts[2]) + 1e6;
  if (!read_more || cold_ms < 2 * warm_ms || cold_ms < 0.1 * examined.step_ms()) return {};
  Match match;
  match.at(examined.facts().training_loader()->site).fact("ms", ms_text(cold_ms)).fact("value", ms_text(warm_ms));
  return {
      match.saw("data wait of a step", fmt::format("{} ms, later {} ms", ms_text(cold_ms), ms_text(warm_ms)), "steps")};
}

Matches one_file(const Case& examined) {
  const auto* loader = examined.facts().training_loader();
  if (!reads_whole_batches(examined) || examined.loader.wait_ms < 0.02 * examined.loader.step_ms) return {};
  Match match;
  match.at(loader->site).fact("batch", "1").fact("samples", number_text(examined.evidence.steps.samples));
  match.saw("batch_size", "1", place_of(loader->site));
  return {match.saw("samples of a step", number_text(examined.evidence.steps.samples), "steps")};
}

constexpr std::array kRules{
    Rule{"loader-workers-respawned", respawned},
    Rule{"loader-begun-each-step", begun_each_step},
    Rule{"data-set-cold", cold},
    Rule{"loader-one-file-per-batch", one_file},
};

}  // namespace

bool reads_whole_batches(const Case& examined) {
  constexpr double kManySamples = 8;
  const auto* loader = examined.facts().training_loader();
  return loader != nullptr && loader->batch_size == 1U && examined.evidence.steps.samples >= kManySamples &&
         examined.loader.known() && examined.loader.batches_of_step <= 1;
}

double restarts_ms(const Case& examined) {
  if (const auto found = beginnings(examined)) return found->ms;
  const auto restarts = worker_restarts(examined);
  return restarts ? restarts->ms / restarts->steps : 0;
}

std::span<const Rule> loader_course_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
