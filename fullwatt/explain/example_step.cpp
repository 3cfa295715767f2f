#include "fullwatt/explain/example_step.hpp"

#include <algorithm>
#include <cmath>

#include "fullwatt/explain/attribution.hpp"
#include "fullwatt/explain/settings_in_force.hpp"
#include "fullwatt/explain/steps.hpp"

namespace fullwatt::explain {
namespace {

constexpr std::size_t kMostBars = 200;  ///< in a lane
constexpr std::size_t kLongestText = 120;

struct Choice {
  const CausesWindow* window = nullptr;
  Interval range;
};

/// The step whose length is nearest to the median.
Choice typical_step(const RecordedCauses& causes) {
  std::vector<Choice> steps;
  std::vector<double> lengths;
  for (const auto& window : causes.windows) {
    const auto& ends = window.window.boundaries;
    for (std::size_t i = 1; i < ends.size(); ++i) {
      steps.push_back({&window, {ends[i - 1], ends[i]}});
      lengths.push_back(static_cast<double>(ends[i] - ends[i - 1]));
    }
  }
  if (steps.empty()) return {};
  const double middle = spread_of(lengths).median;
  const auto nearest = std::ranges::min_element(lengths, {}, [&](double length) { return std::abs(length - middle); });
  return steps[static_cast<std::size_t>(nearest - lengths.begin())];
}

std::string host_kind(const HostSegment& segment, bool gpu_seen) {
  if (segment.work == Work::agent) return "fullwatt";
  return std::string(gpu_seen ? cause_of(segment.work) : host_cause(segment.phase, segment.work));
}

model::TimelineBar bar_of(const char* lane, const Interval& range, const Interval& step, std::string kind,
                          std::string text) {
  const auto start = std::max(range.start_ns, step.start_ns);
  const auto end = std::min(range.end_ns, step.end_ns);
  return {lane, static_cast<double>(start - step.start_ns) / 1e6, static_cast<double>(end - start) / 1e6,
          std::move(kind), std::move(text)};
}

bool overlaps(const Interval& range, const Interval& step) {
  return range.start_ns < step.end_ns && range.end_ns > step.start_ns;
}

/// Joins neighbours of one kind; as long as there are too many, also over gaps, and over others that are short.
std::vector<model::TimelineBar> joined(const std::vector<model::TimelineBar>& bars, double gap_ms, bool same_text) {
  std::vector<model::TimelineBar> list;
  for (const auto& bar : bars) {
    if (!list.empty()) {
      auto& last = list.back();
      const double end = last.start_ms + last.length_ms;
      const bool near = bar.start_ms - end <= gap_ms;
      const bool alike = last.kind == bar.kind && (!same_text || last.text == bar.text);
      if (near && (alike || (!same_text && bar.length_ms <= gap_ms))) {
        last.length_ms = std::max(end, bar.start_ms + bar.length_ms) - last.start_ms;
        continue;
      }
    }
    list.push_back(bar);
  }
  return list;
}

std::vector<model::TimelineBar> few(std::vector<model::TimelineBar> bars, double step_ms) {
  bars = joined(bars, 1e-6, true);
  for (double gap = step_ms / 4000; bars.size() > kMostBars; gap *= 2) bars = joined(bars, gap, false);
  return bars;
}

}  // namespace

ExampleStep example_step(const model::TrainingProcess& process, const RecordedCauses& causes, bool gpu_seen) {
  ExampleStep example;
  const auto chosen = typical_step(causes);
  if (chosen.window == nullptr) return example;
  example.ms = static_cast<double>(chosen.range.length_ns()) / 1e6;
  std::vector<model::TimelineBar> host;
  for (const auto& segment : chosen.window->host) {
    if (!overlaps(segment.range, chosen.range)) continue;
    const auto place = place_of(causes.sites.site(segment.line));
    host.push_back(bar_of("host", segment.range, chosen.range, host_kind(segment, gpu_seen), place));
  }
  std::vector<model::TimelineBar> gpu;
  GpuCauses gpu_causes(process);
  for (const auto& activity : chosen.window->activities) {
    const Interval range{activity.start_ns, activity.end_ns};
    if (!overlaps(range, chosen.range)) continue;
    const bool kernel = activity.kind == model::GpuActivity::Kind::kernel;
    const auto text = kernel ? kernel_name(process.text(activity.name)).substr(0, kLongestText) : std::string{};
    gpu.push_back(bar_of("gpu", range, chosen.range, gpu_causes.cause(activity), text));
  }
  example.bars = few(std::move(host), example.ms);
  const auto gpu_bars = few(std::move(gpu), example.ms);
  example.bars.insert(example.bars.end(), gpu_bars.begin(), gpu_bars.end());
  return example;
}

}  // namespace fullwatt::explain
