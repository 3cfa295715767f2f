#include "fullwatt/explain/loader_pace.hpp"

#include <algorithm>
#include <set>

#include "fullwatt/explain/windows.hpp"

namespace fullwatt::explain {
namespace {

/// Batches of one worker after the other, made for this trainer.
struct WorkerBatches {
  double ms = 0;
  double count = 0;
  std::set<std::pair<int, int>> workers;  // process and number
};

WorkerBatches batches_of(const model::Run& run, const std::vector<ProcessFacts>& facts, int trainer) {
  WorkerBatches batches;
  for (std::size_t i = 0; i < run.processes.size(); ++i) {
    const auto& process = run.processes[i];
    const int parent = i < facts.size() ? facts[i].process.parent : 0;
    if (process.role != model::TrainingProcess::Role::worker || (parent != 0 && parent != trainer)) continue;
    for (const auto& fetch : process.fetches) {
      batches.ms += static_cast<double>(fetch.end_ns - fetch.start_ns) / 1e6;
      batches.count += 1;
      batches.workers.insert({process.pid, fetch.worker});
    }
  }
  return batches;
}

}  // namespace

double batches_per_step(const model::TrainingProcess& process, const Steps& steps) {
  double waits = 0;
  double counted = 0;
  for (const auto mode : {model::RecordedWindow::Mode::times, model::RecordedWindow::Mode::causes}) {
    for (const auto& window : step_windows(process, steps.all, mode)) {
      counted += window.steps();
      for (const auto& span : process.phases) {
        const bool inside = span.end_ns > window.range.start_ns && span.end_ns <= window.range.end_ns;
        waits += inside && span.phase == model::Phase::data ? 1 : 0;
      }
    }
  }
  return counted > 0 && waits > 0 ? waits / counted : 1;
}

LoaderPace loader_pace(const model::Run& run, const std::vector<ProcessFacts>& facts,
                       const model::TrainingProcess& trainer, const ProcessFacts& own, const Steps& steps) {
  LoaderPace pace;
  const auto* loader = own.training_loader();
  const auto made_here = [](const model::Fetch& fetch) { return fetch.worker < 0; };
  if (loader != nullptr && loader->num_workers) {
    pace.loads_itself = *loader->num_workers == 0;
  } else {
    pace.loads_itself = std::ranges::any_of(trainer.fetches, made_here);
  }
  if (pace.loads_itself) return pace;
  const auto batches = batches_of(run, facts, trainer.pid);
  if (batches.count > 0) {
    pace.floor_ms =
        batches.ms / batches.count / static_cast<double>(batches.workers.size()) * batches_per_step(trainer, steps);
  }
  return pace;
}

}  // namespace fullwatt::explain
