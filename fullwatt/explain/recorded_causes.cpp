#include "fullwatt/explain/recorded_causes.hpp"

#include <algorithm>

namespace fullwatt::explain {
namespace {

std::unordered_map<std::uint64_t, Interval> launches_in(const model::TrainingProcess& process, const Interval& range) {
  std::unordered_map<std::uint64_t, Interval> launches;
  auto at = std::ranges::lower_bound(process.calls, range.start_ns, {}, &model::ApiCall::start_ns);
  for (; at != process.calls.end() && at->start_ns < range.end_ns; ++at) {
    launches.try_emplace(at->correlation, Interval{at->start_ns, at->end_ns});
  }
  return launches;
}

}  // namespace

const HostSegment* CausesWindow::at(std::uint64_t time) const {
  const auto after =
      std::ranges::upper_bound(host, time, {}, [](const HostSegment& segment) { return segment.range.start_ns; });
  if (after == host.begin()) return nullptr;
  const auto& segment = *std::prev(after);
  return time < segment.range.end_ns ? &segment : nullptr;
}

const HostSegment* CausesWindow::launched_from(const model::GpuActivity& activity) const {
  const auto launch = launches.find(activity.correlation);
  return launch == launches.end() ? nullptr : at(launch->second.start_ns);
}

double RecordedCauses::steps() const {
  double sum = 0;
  for (const auto& window : windows) sum += window.steps();
  return sum;
}

double RecordedCauses::step_ms() const {
  return mean_ms([](const HostSegment&) { return true; });
}

RecordedCauses read_causes(const model::TrainingProcess& process, const ProcessFacts& facts, const Steps& steps,
                           int device) {
  RecordedCauses causes{Sites(process, facts), {}};
  const auto windows = step_windows(process, steps.all, model::RecordedWindow::Mode::causes);
  auto timelines = host_timelines(process, causes.sites, windows);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    CausesWindow read;
    read.window = windows[i];
    read.host = std::move(timelines[i]);
    read.activities = activities_in(process, windows[i], device);
    read.launches = launches_in(process, windows[i].range);
    causes.windows.push_back(std::move(read));
  }
  return causes;
}

}  // namespace fullwatt::explain
