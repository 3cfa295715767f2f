// What grows with time: memory, and the length of a step.

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "fullwatt/explain/rules/rule.hpp"

namespace fullwatt::explain {
namespace {

constexpr double kMiB = 1024.0 * 1024;
constexpr double kGiB = kMiB * 1024;

/// A quantity over the run, the start left out, in four parts.
struct Course {
  std::array<double, 4> quarters{};  ///< means
  double first = 0;
  double last = 0;

  bool rises() const { return quarters[0] < quarters[1] && quarters[1] < quarters[2] && quarters[2] < quarters[3]; }
  /// The second half grew too: what only fills at the start is no leak.
  bool goes_on_rising() const { return rises() && quarters[3] - quarters[2] > 0.25 * (quarters[1] - quarters[0]); }
};

std::optional<Course> course_of(std::vector<double> values) {
  constexpr std::size_t kLeast = 12;
  values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 10));
  if (values.size() < kLeast) return std::nullopt;
  Course course;
  for (std::size_t part = 0; part < 4; ++part) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(values.size() * part / 4);
    const auto end = values.begin() + static_cast<std::ptrdiff_t>(values.size() * (part + 1) / 4);
    course.quarters[part] = spread_of({begin, end}).mean;
  }
  course.first = values.front();
  course.last = values.back();
  return course;
}

Matches device_memory(const Case& examined) {
  const auto& samples = examined.evidence.trainer->memory;
  std::vector<double> bytes;
  for (const auto& sample : samples) bytes.push_back(static_cast<double>(sample.allocated_bytes));
  const auto course = course_of(bytes);
  if (!course || !course->goes_on_rising()) return {};
  const double grown = course->last - course->first;
  const auto& tenth = samples[samples.size() / 10];
  const double ms = static_cast<double>(samples.back().at_ns - tenth.at_ns) / 1e6;
  if (grown < 64 * kMiB || grown < 0.05 * course->first || examined.step_ms() <= 0) return {};
  Match match;
  match.fact("value", number_text(grown / kMiB / (ms / examined.step_ms()) * 1000));
  match.fact("count", number_text(course->first / kMiB)).fact("limit", number_text(course->last / kMiB));
  return {match.saw("allocated", fmt::format("{:.0f} to {:.0f} MiB", course->first / kMiB, course->last / kMiB),
                    "allocator")};
}

/// What the training's processes hold that is neither a mapped file nor shared between them.
double own_bytes(const model::HostSample& sample) {
  return static_cast<double>(sample.training_rss_bytes) -
         static_cast<double>(std::min(sample.training_shared_bytes, sample.training_rss_bytes));
}

/// From its first step until its processes end, whose memory is gone in the last sample.
std::vector<const model::HostSample*> samples_of_training(const Case& examined) {
  const auto& steps = examined.evidence.steps.all;
  std::vector<const model::HostSample*> samples;
  for (const auto& sample : examined.evidence.run.host_samples) {
    if (!steps.empty() && sample.at_ns >= steps.front().start_ns) samples.push_back(&sample);
  }
  while (samples.size() > 1 && own_bytes(*samples.back()) < own_bytes(*samples[samples.size() - 2]) / 2)
    samples.pop_back();
  return samples;
}

Matches host_memory(const Case& examined) {
  constexpr double kLongSeconds = 60;
  constexpr double kFastest = kGiB / 60;  // a second, of what only fills up while a training begins
  const auto samples = samples_of_training(examined);
  std::vector<double> bytes;
  for (const auto* sample : samples) bytes.push_back(own_bytes(*sample));
  const auto course = course_of(bytes);
  if (!course || !course->goes_on_rising()) return {};
  const auto* tenth = samples[samples.size() / 10];
  const double seconds = static_cast<double>(samples.back()->at_ns - tenth->at_ns) / 1e9;
  const double grown = course->last - course->first;
  if (grown < 256 * kMiB || grown < 0.1 * course->first) return {};
  if (seconds < kLongSeconds && grown < kFastest * seconds) return {};
  Match match;
  match.fact("value", number_text(grown / kMiB / seconds * 60));
  match.fact("count", fmt::format("{:.1f}", course->first / kGiB))
      .fact("limit", fmt::format("{:.1f}", course->last / kGiB));
  return {match.saw("memory of the training's processes",
                    fmt::format("{:.1f} to {:.1f} GiB in {:.0f} s", course->first / kGiB, course->last / kGiB, seconds),
                    "/proc")};
}

/// The mean plain step of a part of the run, and how long that part was.
struct StepLength {
  double ms = 0;
  double lasted = 0;
};
using StepLengths = std::vector<StepLength>;

StepLengths step_course(const Case& examined) {
  StepLengths lengths;
  for (const auto& bucket : examined.evidence.trainer->trend) {
    if (bucket.plain_steps == 0) continue;
    const auto sum = static_cast<double>(bucket.plain_sum_ns) / 1e6;
    lengths.push_back({sum / static_cast<double>(bucket.plain_steps), sum});
  }
  return lengths;
}

/// The step that this share of the time was spent in shorter ones than.
double share_shorter(StepLengths lengths, double share) {
  std::ranges::sort(lengths, {}, &StepLength::ms);
  double left = 0;
  for (const auto& length : lengths) left += share * length.lasted;
  for (const auto& length : lengths) {
    left -= length.lasted;
    if (left <= 0) return length.ms;
  }
  return lengths.back().ms;
}

/// The step's length in the quarters of a run's time: medians, because a host that hurries ahead of the GPU makes
/// single steps short and long, and by time, because a hundred of them may be over before the GPU has done the first.
struct StepCourse {
  std::array<double, 4> medians{};
  bool apart = false;  ///< nearly all steps of the last quarter are longer than nearly all of the first
};

std::optional<StepCourse> measured_course(const StepLengths& lengths) {
  constexpr std::size_t kLeast = 12;
  constexpr double kBeginning = 0.1;  // of the time, left out
  double all = 0;
  for (const auto& length : lengths) all += length.lasted;
  std::array<StepLengths, 4> quarters;
  std::size_t count = 0;
  double passed = 0;
  for (const auto& length : lengths) {
    const double middle = (passed + length.lasted / 2) / all;
    passed += length.lasted;
    if (middle < kBeginning) continue;
    ++count;
    quarters[std::min<std::size_t>(3, static_cast<std::size_t>((middle - kBeginning) / (1 - kBeginning) * 4))]
        .push_back(length);
  }
  if (count < kLeast || std::ranges::any_of(quarters, &StepLengths::empty)) return std::nullopt;
  StepCourse course;
  std::ranges::transform(quarters, course.medians.begin(), [](const auto& part) { return share_shorter(part, 0.5); });
  course.apart = share_shorter(quarters.back(), 0.2) > share_shorter(quarters.front(), 0.8);
  return course;
}

/// Slower than at the start by this much, rising all the time: the price is what the mean step has lost by it. A
/// machine is not steady over a few seconds: there only a large rise counts.
Matches step_time(const Case& examined) {
  constexpr double kLongSeconds = 30;
  const auto course = measured_course(step_course(examined));
  if (!course || !course->apart || !std::ranges::is_sorted(course->medians)) return {};
  const auto& medians = course->medians;
  const double more = medians[3] - medians[0];
  const auto& trend = examined.evidence.explanation.trend;
  const bool is_long = !trend.empty() && trend.back().at_s >= kLongSeconds;
  if (more < (is_long ? 0.08 : 0.3) * medians[0]) return {};
  double mean = 0;
  for (const double median : medians) mean += median / 4;
  Match match;
  match.costs(more, mean - medians[0], examined.step_ms());
  match.fact("value", percent(more / medians[0])).fact("limit", ms_text(medians[0]));
  return {match.saw("step", fmt::format("{} ms, at the end {} ms", ms_text(medians[0]), ms_text(medians[3])), "trend")};
}

constexpr std::array kRules{
    Rule{"device-memory-leak", device_memory},
    Rule{"host-memory-leak", host_memory},
    Rule{"step-time-decay", step_time},
};

}  // namespace

std::span<const Rule> leak_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
