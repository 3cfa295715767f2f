// What grows with time: memory, and the length of a step.

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "fullwatt/explain/machine_facts.hpp"
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
  const double ms = static_cast<double>(samples.back().at_ns - samples[samples.size() / 10].at_ns) / 1e6;
  if (grown < 64 * kMiB || grown < 0.05 * course->first || examined.step_ms() <= 0) return {};
  Match match;
  match.fact("value", number_text(grown / kMiB / (ms / examined.step_ms()) * 1000));
  match.fact("count", number_text(course->first / kMiB)).fact("limit", number_text(course->last / kMiB));
  return {match.saw("allocated", fmt::format("{:.0f} to {:.0f} MiB", course->first / kMiB, course->last / kMiB),
                    "allocator")};
}

Matches host_memory(const Case& examined) {
  constexpr double kLongSeconds = 60;
  constexpr double kFastest = kGiB / 60;  // a second, of what only fills up while a training begins
  const auto samples = samples_while_stepping(examined.evidence);
  std::vector<double> bytes;
  for (const auto* sample : samples) {
    const auto mapped = std::min(sample->training_shared_bytes, sample->training_rss_bytes);
    bytes.push_back(static_cast<double>(sample->training_rss_bytes - mapped));
  }
  const auto course = course_of(bytes);
  if (!course || !course->goes_on_rising()) return {};
  const double seconds = static_cast<double>(samples.back()->at_ns - samples[samples.size() / 10]->at_ns) / 1e9;
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

/// Mean plain step of each part of the run.
std::vector<double> step_course(const Case& examined) {
  std::vector<double> lengths;
  for (const auto& bucket : examined.evidence.trainer->trend) {
    if (bucket.plain_steps > 0)
      lengths.push_back(static_cast<double>(bucket.plain_sum_ns) / static_cast<double>(bucket.plain_steps) / 1e6);
  }
  return lengths;
}

/// The step's length in the quarters of a run: medians, because a host that hurries ahead of the GPU makes single steps
/// short and long.
struct StepCourse {
  std::array<double, 4> medians{};
  bool apart = false;  ///< nearly all steps of the last quarter are longer than nearly all of the first
};

std::optional<StepCourse> measured_course(std::vector<double> lengths) {
  constexpr std::size_t kLeast = 12;
  lengths.erase(lengths.begin(), lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 10));
  if (lengths.size() < kLeast) return std::nullopt;
  StepCourse course;
  std::array<std::vector<double>, 4> quarters;
  for (std::size_t i = 0; i < lengths.size(); ++i) quarters[i * 4 / lengths.size()].push_back(lengths[i]);
  for (std::size_t i = 0; i < 4; ++i) {
    std::ranges::sort(quarters[i]);
    course.medians[i] = quarters[i][quarters[i].size() / 2];
  }
  const auto& first = quarters.front();
  const auto& last = quarters.back();
  course.apart = last[last.size() / 5] > first[first.size() * 4 / 5];
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
