#include "fullwatt/explain/windows.hpp"

#include <algorithm>
#include <limits>

namespace fullwatt::explain {
namespace {

std::vector<std::uint64_t> ends_in(const model::RecordedWindow& window, const std::vector<TrainingStep>& steps) {
  std::vector<std::uint64_t> ends;
  auto at = std::ranges::upper_bound(steps, window.start_ns, {}, &TrainingStep::end_ns);
  for (; at != steps.end() && at->end_ns <= window.end_ns; ++at) ends.push_back(at->end_ns);
  return ends;
}

/// Step records are a ring: those of an early window may be gone, but the optimiser's phases inside it are not.
std::vector<std::uint64_t> ends_by_phases(const model::TrainingProcess& process, const model::RecordedWindow& window) {
  std::vector<std::uint64_t> ends;
  auto at = std::ranges::lower_bound(process.phases, window.start_ns, {}, &model::PhaseSpan::start_ns);
  for (; at != process.phases.end() && at->end_ns <= window.end_ns; ++at) {
    if (at->phase == model::Phase::optimizer) ends.push_back(at->end_ns);
  }
  const std::size_t optimizers = window.steps == 0 ? 1 : std::max<std::size_t>(1, ends.size() / window.steps);
  std::vector<std::uint64_t> kept;
  for (std::size_t i = optimizers - 1; i < ends.size(); i += optimizers) kept.push_back(ends[i]);
  return kept;
}

/// With several optimisers a window may open in the middle of a step.
bool opens_between_steps(const model::TrainingProcess& process, const model::RecordedWindow& window, int closing) {
  const auto after = std::ranges::upper_bound(process.steps, window.start_ns, {}, &model::OptimizerStep::end_ns);
  return after == process.steps.begin() || std::prev(after)->optimizer == closing;
}

/// Steps that do more than train.
constexpr unsigned kMore = step_flag::kEvaluated | step_flag::kSaved | step_flag::kCompiled | step_flag::kCounting;

/// Whether the step that ends at a boundary only trains.
bool only_trains(const std::vector<TrainingStep>& steps, std::uint64_t end_ns) {
  const auto at = std::ranges::lower_bound(steps, end_ns, {}, &TrainingStep::end_ns);
  return at == steps.end() || at->end_ns != end_ns || !at->has(kMore);
}

/// Cuts a window at the steps that do more. What is launched before such a step is taken to be done when it begins:
/// evaluating and saving wait for the GPU.
std::vector<StepWindow> training_parts(const StepWindow& window, const std::vector<TrainingStep>& steps) {
  std::vector<StepWindow> parts;
  StepWindow open;
  const auto close = [&](bool last) {
    if (open.boundaries.size() >= 2) {
      open.range = {open.boundaries.front(), open.boundaries.back()};
      open.records_end_ns = last ? window.records_end_ns : open.range.end_ns;
      open.lost = window.lost;
      parts.push_back(open);
    }
    open.boundaries.clear();
  };
  open.boundaries.push_back(window.boundaries.front());
  for (std::size_t i = 1; i < window.boundaries.size(); ++i) {
    if (!only_trains(steps, window.boundaries[i])) close(false);
    open.boundaries.push_back(window.boundaries[i]);
  }
  close(true);
  return parts;
}

void cut_out_more(std::vector<StepWindow>& windows, const std::vector<TrainingStep>& steps) {
  std::vector<StepWindow> parts;
  for (const auto& window : windows) {
    for (auto& part : training_parts(window, steps)) parts.push_back(std::move(part));
  }
  if (!parts.empty()) windows = std::move(parts);
}

void drop_lossy(std::vector<StepWindow>& windows) {
  const auto lost_nothing = [](const StepWindow& window) { return window.lost == 0; };
  if (!std::ranges::any_of(windows, lost_nothing)) return;
  std::erase_if(windows, [&](const StepWindow& window) { return !lost_nothing(window); });
}

}  // namespace

std::vector<StepWindow> step_windows(const model::TrainingProcess& process, const std::vector<TrainingStep>& steps,
                                     model::RecordedWindow::Mode mode) {
  std::vector<StepWindow> found;
  const int closing = closing_optimizer(process);
  for (std::size_t i = 0; i < process.windows.size(); ++i) {
    const auto& window = process.windows[i];
    if (window.mode != mode) continue;
    auto ends = ends_in(window, steps);
    if (ends.empty()) ends = ends_by_phases(process, window);
    if (opens_between_steps(process, window, closing)) ends.insert(ends.begin(), window.start_ns);
    if (ends.size() < 2) continue;
    const Interval range{ends.front(), ends.back()};
    const bool last = i + 1 == process.windows.size();
    const auto records_end = last ? std::numeric_limits<std::uint64_t>::max() : process.windows[i + 1].start_ns;
    found.push_back({range, std::move(ends), records_end, window.lost});
  }
  drop_lossy(found);
  cut_out_more(found, steps);
  return found;
}

std::vector<PhasePiece> phases_in(const model::TrainingProcess& process, const Interval& range) {
  std::vector<PhasePiece> pieces;
  std::vector<const model::PhaseSpan*> open;
  auto cursor = range.start_ns;
  const auto pass_to = [&](std::uint64_t time) {
    time = std::clamp(time, cursor, range.end_ns);
    if (time == cursor) return;
    const auto phase = open.empty() ? HostPhase::rest : static_cast<HostPhase>(open.back()->phase);
    pieces.push_back({{cursor, time}, phase, open.empty() ? 0 : open.back()->site});
    cursor = time;
  };
  const auto close_before = [&](std::uint64_t time) {
    while (!open.empty() && open.back()->end_ns <= time) {
      pass_to(open.back()->end_ns);
      open.pop_back();
    }
  };
  for (const auto& span : process.phases) {
    if (span.start_ns >= range.end_ns) break;
    if (span.end_ns <= range.start_ns) continue;
    close_before(span.start_ns);
    pass_to(span.start_ns);
    open.push_back(&span);
  }
  close_before(range.end_ns);
  pass_to(range.end_ns);
  return pieces;
}

std::vector<model::GpuActivity> activities_in(const model::TrainingProcess& process, const StepWindow& window,
                                              int device) {
  std::vector<model::GpuActivity> found;
  auto at = std::ranges::lower_bound(process.activities, window.range.start_ns, {}, &model::GpuActivity::start_ns);
  for (; at != process.activities.end() && at->start_ns < window.records_end_ns; ++at) {
    if (at->device == device) found.push_back(*at);
  }
  return found;
}

std::vector<Interval> united(const std::vector<model::GpuActivity>& activities) {
  std::vector<Interval> joined;
  for (const auto& activity : activities) {
    if (!joined.empty() && activity.start_ns <= joined.back().end_ns) {
      joined.back().end_ns = std::max(joined.back().end_ns, activity.end_ns);
    } else {
      joined.push_back({activity.start_ns, activity.end_ns});
    }
  }
  return joined;
}

std::vector<Interval> gaps_between(const std::vector<Interval>& joined, const Interval& range) {
  std::vector<Interval> gaps;
  auto cursor = range.start_ns;
  for (const auto& interval : joined) {
    if (interval.start_ns > cursor) gaps.push_back({cursor, std::min(interval.start_ns, range.end_ns)});
    cursor = std::max(cursor, interval.end_ns);
    if (cursor >= range.end_ns) return gaps;
  }
  gaps.push_back({cursor, range.end_ns});
  return gaps;
}

double total_ms(std::span<const Interval> intervals) {
  double sum = 0;
  for (const auto& interval : intervals) sum += static_cast<double>(interval.length_ns()) / 1e6;
  return sum;
}

}  // namespace fullwatt::explain
