#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fullwatt/show/html.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/run_html_parts.hpp"

namespace fullwatt::show::html_parts {
namespace {

constexpr int kHeight = 110;
constexpr double kUnits = 1000;     ///< of the drawing's own coordinates, in both directions
constexpr double kHeadroom = 0.85;  ///< the rest of the height is for the axis' label
constexpr double kPeaks =
    1.75;  ///< peaks above this many times the 95th percentile are cut, or they would flatten the rest

struct Series {
  std::string_view label;
  std::string_view unit;
  std::string_view kind;
  std::vector<double> x;
  std::vector<double> y;
};

double percentile(std::vector<double> values, double share) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, at);
  return *at;
}

/// A round number at or above `value`.
double rounded_up(double value) {
  if (value <= 0) return 1;
  const auto power = std::pow(10.0, std::floor(std::log10(value)));
  for (const auto step : {1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0})
    if (step * power >= value) return step * power;
  return 10 * power;
}

double top_of(const Series& series) {
  const auto largest = *std::ranges::max_element(series.y);
  const auto usual = kPeaks * percentile(series.y, 0.95);
  return rounded_up((usual > 0 ? std::min(largest, usual) : largest) / kHeadroom);
}

std::string points(const Series& series, double top) {
  std::string out;
  const auto length = series.x.back() - series.x.front();
  for (std::size_t i = 0; i < series.x.size(); ++i)
    out += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", share_of(series.x[i] - series.x.front(), length) * kUnits,
                       kUnits - std::min(series.y[i] / top, 3.0) * kUnits);
  return out;
}

std::string numbers(const std::vector<double>& values) {
  std::string out;
  for (const auto value : values) out += fmt::format("{}{:.4g}", out.empty() ? "" : ",", value);
  return out;
}

std::string chart(const Report& report, const Series& series) {
  const auto top = top_of(series);
  const auto path = points(series, top);
  const auto middle = percentile(series.y, 0.5);
  return fmt::format(
      "<figure class=\"chart {0}\"><figcaption>{1} <output>{2} {3}</output></figcaption>\n"
      "<svg width=\"100%\" height=\"{4}\" role=\"img\" aria-label=\"{1}: {2} {3}\" data-x=\"{5}\" data-y=\"{6}\" "
      "data-unit=\"{3}\">"
      "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"0.5\" y2=\"0.5\"/><line class=\"grid\" x1=\"0\" x2=\"100%\" "
      "y1=\"{7}\" y2=\"{7}\"/><line class=\"grid base\" x1=\"0\" x2=\"100%\" y1=\"{8}\" y2=\"{8}\"/>\n"
      "<svg width=\"100%\" height=\"{4}\" viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\">"
      "<path class=\"area\" d=\"{9}L1000 1000L0 1000Z\"/><path class=\"line\" d=\"{9}\"/></svg>\n"
      "<text class=\"axis\" x=\"2\" y=\"13\">{10:g} {3}</text>"
      "<line class=\"cursor\" x1=\"-9\" x2=\"-9\" y1=\"0\" y2=\"{4}\"/></svg>\n"
      "<p class=\"ends\"><span>0:00</span><span>{11}</span></p></figure>\n",
      kind_class(series.kind), report.say(series.label), figure(middle), series.unit, kHeight, numbers(series.x),
      numbers(series.y), 0.5 * kHeight + 0.5, kHeight - 0.5, path, top, clock(series.x.back() - series.x.front()));
}

std::vector<Series> all_series(const model::Explanation& explanation) {
  std::vector<Series> all{{"run_step_time", "ms", "forward"},
                          {"run_data_wait_time", "ms", "data-wait"},
                          {"run_power", "W", "gpu-matmul"},
                          {"run_memory", "GiB", "gpu-softmax"}};
  const auto add = [](Series& series, double x, std::optional<double> y) {
    if (!y || !std::isfinite(*y) || !std::isfinite(x)) return;
    series.x.push_back(x);
    series.y.push_back(std::max(0.0, *y));
  };
  for (const auto& point : explanation.trend) {
    add(all[0], point.at_s, point.step_ms);
    add(all[1], point.at_s, point.data_ms);
    add(all[2], point.at_s, point.power_w);
    add(all[3], point.at_s, point.memory_gib);
  }
  std::erase_if(all, [](const Series& series) { return series.x.size() < 2; });
  return all;
}

}  // namespace

std::string course(const Report& report) {
  std::string charts;
  for (const auto& series : all_series(report.explanation())) charts += chart(report, series);
  if (charts.empty()) return {};
  return heading(report, "course", "run_course") + "<div class=\"charts\">\n" + charts + "</div>\n";
}

}  // namespace fullwatt::show::html_parts
