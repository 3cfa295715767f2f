#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fullwatt/show/html.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/run_html_parts.hpp"

namespace fullwatt::show::html_parts {
namespace {

using model::TimelineBar;

constexpr int kLane = 34;
constexpr int kLaneGap = 24;
constexpr int kAxis = 22;
constexpr double kNarrowest = 0.0004;

/// Distance between marks: 1, 2 or 5 times a power of ten, four to ten of them.
double mark_distance(double length) {
  const auto power = std::pow(10.0, std::floor(std::log10(length / 4)));
  const auto ratio = length / 4 / power;
  return power * (ratio >= 5 ? 5 : ratio >= 2 ? 2 : 1);
}

std::string drawn(const Report& report, const TimelineBar& bar, double whole) {
  const auto start = share_of(bar.start_ms, whole);
  const auto share = std::min(std::max(share_of(bar.length_ms, whole), kNarrowest), 1 - start);
  const auto words = bar.text.empty() ? report.say(bar.kind) : html_escaped(bar.text);
  auto out = fmt::format(
      "<svg x=\"{:.3f}%\" width=\"{:.3f}%\" height=\"{}\" class=\"{}{}\"><title>{}: {}, {}</title>"
      "<rect width=\"100%\" height=\"{}\" fill=\"currentColor\"/>",
      start * 100, share * 100, kLane, kind_class(bar.kind), share >= kEdge ? " edge" : "", report.say(bar.kind), words,
      milliseconds(bar.length_ms), kLane);
  if (fits(words, share)) out += fmt::format("<text x=\"6\" y=\"21\">{}</text>", words);
  return out + "</svg>\n";
}

std::string lane(const Report& report, std::string_view name, std::string_view label, int y, double whole) {
  auto out = fmt::format(
      "<text class=\"lane\" x=\"0\" y=\"{}\">{}</text>\n<svg y=\"{}\" width=\"100%\" height=\"{}\">"
      "<rect class=\"empty\" width=\"100%\" height=\"{}\"/>\n",
      y + kLaneGap - 8, report.say(label), y + kLaneGap, kLane, kLane);
  for (const auto& bar : report.explanation().example_step) {
    if (bar.lane == name) out += drawn(report, bar, whole);
  }
  return out + "</svg>\n";
}

std::string axis(double whole, int y, int top) {
  std::string out;
  const auto distance = mark_distance(whole);
  for (int i = 0; i * distance <= whole * 1.0001 && i < 50; ++i) {
    const auto at = share_of(i * distance, whole);
    const auto* anchor = i == 0 ? "start" : at > 0.97 ? "end" : "middle";
    out += fmt::format(
        "<line class=\"mark\" x1=\"{0:.3f}%\" x2=\"{0:.3f}%\" y1=\"{1}\" y2=\"{2}\"/><text class=\"axis\" "
        "x=\"{0:.3f}%\" "
        "y=\"{3}\" text-anchor=\"{4}\">{5}</text>\n",
        at * 100, top, y + 4, y + 17, anchor, i == 0 ? "0 ms" : fmt::format("{:g}", i * distance));
  }
  return out;
}

}  // namespace

std::string waterfall(const Report& report) {
  const auto& explanation = report.explanation();
  const auto whole = explanation.example_step_ms;
  if (explanation.example_step.empty() || !std::isfinite(whole) || whole <= 0) return {};
  const bool has_gpu = std::ranges::any_of(explanation.example_step, [](const auto& bar) { return bar.lane == "gpu"; });
  const int bottom = (kLaneGap + kLane) * (has_gpu ? 2 : 1);
  auto out = fmt::format(
      "<h3>{}</h3>\n<svg class=\"waterfall\" width=\"100%\" height=\"{}\" role=\"img\" aria-label=\"{}\">\n",
      report.say("run_example_step"), bottom + kAxis, report.say("run_example_step"));
  out += axis(whole, bottom, kLaneGap);
  out += lane(report, "host", "run_host_lane", 0, whole);
  if (has_gpu) out += lane(report, "gpu", "run_gpu_lane", kLaneGap + kLane, whole);
  return out + "</svg>\n";
}

}  // namespace fullwatt::show::html_parts
