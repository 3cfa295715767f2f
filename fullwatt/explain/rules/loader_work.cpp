#include "fullwatt/explain/rules/loader_work.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "fullwatt/explain/loader_pace.hpp"
#include "fullwatt/explain/machine_facts.hpp"

namespace fullwatt::explain {
namespace {

using Fetches = std::vector<const model::Fetch*>;

double length_ms(const model::Fetch& fetch) {
  return static_cast<double>(fetch.end_ns - fetch.start_ns) / 1e6;
}

/// Batches of the trainer's own workers, or of itself, made while it trained.
Fetches training_fetches(const Evidence& evidence) {
  Fetches found;
  if (evidence.steps.all.empty()) return found;
  const auto first = evidence.steps.all.front().start_ns;
  const auto last = evidence.steps.all.back().end_ns;
  for (std::size_t i = 0; i < evidence.run.processes.size(); ++i) {
    const auto& process = evidence.run.processes[i];
    const int parent = i < evidence.all_facts.size() ? evidence.all_facts[i].process.parent : 0;
    const bool other =
        process.role == model::TrainingProcess::Role::worker && parent != 0 && parent != evidence.trainer->pid;
    if (other || (process.role != model::TrainingProcess::Role::worker && &process != evidence.trainer)) continue;
    for (const auto& fetch : process.fetches) {
      if (fetch.end_ns > fetch.start_ns && fetch.end_ns > first && fetch.start_ns < last) found.push_back(&fetch);
    }
  }
  return found;
}

double slow_worker(const Fetches& fetches) {
  std::map<int, std::vector<double>> by_worker;
  for (const auto* fetch : fetches) by_worker[fetch->worker].push_back(length_ms(*fetch));
  std::vector<double> means;
  for (const auto& [worker, lengths] : by_worker) means.push_back(spread_of(lengths).mean);
  if (means.size() < 2) return 1;
  std::ranges::sort(means);
  const double usual = means[(means.size() - 1) / 2];
  return usual > 0 ? means.back() / usual : 1;
}

void measure(LoaderWork& work, const Fetches& fetches) {
  double wall = 0;
  double cpu = 0;
  double collate = 0;
  double read_kib = 0;
  double samples = 0;
  std::vector<double> lengths;
  for (const auto* fetch : fetches) {
    lengths.push_back(length_ms(*fetch));
    wall += lengths.back();
    cpu += static_cast<double>(fetch->cpu_ns) / 1e6;
    collate += static_cast<double>(fetch->collate_ns) / 1e6;
    read_kib += fetch->read_kib;
    samples += fetch->samples;
  }
  work.batches = static_cast<double>(fetches.size());
  work.batch_ms = wall / work.batches;
  work.cpu_share = wall > 0 ? std::min(1.0, cpu / wall) : 0;
  work.collate_share = wall > 0 ? std::min(1.0, collate / wall) : 0;
  work.read_mb = read_kib / work.batches * 1024 / 1e6;
  work.samples = samples / work.batches;
  const auto spread = spread_of(lengths);
  work.slow_ratio = spread.median > 0 ? spread.p95 / spread.median : 1;
}

bool cpus_are_full(const Evidence& evidence) {
  constexpr double kFull = 0.9;
  const auto cpus = allowed_cpus(evidence.run);
  const auto load = host_load(evidence);
  return cpus && load.known && load.busy >= kFull * *cpus;
}

double usual_wait_ms(const model::TrainingProcess& trainer) {
  std::vector<double> lengths;
  for (const auto& span : trainer.phases) {
    if (span.phase == model::Phase::data) lengths.push_back(static_cast<double>(span.end_ns - span.start_ns) / 1e6);
  }
  return spread_of(lengths).median;
}

}  // namespace

double LoaderWork::busy() const {
  return step_ms > 0 ? std::min(1.0, supply_ms(std::max(workers, 1)) / step_ms) : 0;
}

double LoaderWork::gain_with(double count) const {
  if (!known()) return gain_ms;
  return std::clamp(step_ms - supply_ms(count), 0.0, gain_ms);
}

LoaderWork measure_loader(const Evidence& evidence) {
  LoaderWork work;
  const auto* loader = evidence.facts.training_loader();
  if (loader != nullptr) work.workers = loader->num_workers.value_or(0);
  work.step_ms = evidence.steps.mean_ms();
  work.wait_ms = evidence.attribution.ms(cause::kDataWait);
  work.gain_ms = evidence.replay.gain_ms(Change::without(cause::kDataWait));
  if (const auto& ceiling = evidence.explanation.ceiling_ms) {
    work.gain_ms = std::clamp(work.step_ms - *ceiling, 0.0, work.step_ms);
  }
  const auto fetches = training_fetches(evidence);
  if (fetches.empty()) return work;
  measure(work, fetches);
  work.batches_of_step = batches_per_step(*evidence.trainer, evidence.steps);
  work.usual_wait_ms = usual_wait_ms(*evidence.trainer) * work.batches_of_step;
  work.slow_worker = slow_worker(fetches);
  return work;
}

std::optional<double> padding_ms(const Evidence& evidence) {
  const auto* loader = evidence.facts.training_loader();
  const auto pads = [&](const auto& facts) {
    return std::ranges::find(facts.padding_functions, loader->collate) != facts.padding_functions.end();
  };
  if (loader == nullptr || std::ranges::none_of(evidence.all_facts, pads)) return std::nullopt;
  const auto work = measure_loader(evidence);
  auto padding = work.collate_share * work.batch_ms * work.batches_of_step;
  if (cpus_are_full(evidence)) padding *= work.cpu_share;  // the rest waits for a CPU, which workers then leave free
  const auto hidden = std::max(0.0, padding - work.wait_ms);
  auto rest = Change::without(cause::kDataWait);
  const auto all_ms = evidence.replay.gain_ms(rest);
  rest.removals.front().share = work.wait_ms > 0 ? std::max(0.0, 1 - padding / work.wait_ms) : 0;
  return hidden + std::max(0.0, all_ms - evidence.replay.gain_ms(rest));
}

}  // namespace fullwatt::explain
