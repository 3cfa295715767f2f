#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/code_html.hpp"
#include "fullwatt/show/html.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/run_html_parts.hpp"
#include "fullwatt/show/run_words.hpp"

namespace fullwatt::show::html_parts {
namespace {

constexpr int kHeats = 8;
constexpr std::size_t kShownWhole = 60;  ///< files up to this many lines are not folded
constexpr std::size_t kAround = 4;       ///< lines shown before and after one that costs
constexpr std::size_t kShortestFold = 8;
constexpr std::size_t kLongestFold = 400;  ///< longer stretches are named, not shown: a page must stay a page

/// What the margin says about one line.
struct Margin {
  double ms = 0;
  std::vector<std::string> what;      ///< HTML
  std::vector<std::string> findings;  ///< HTML, links
};
using Margins = std::map<std::size_t, Margin>;

void once(std::vector<std::string>& list, std::string text) {
  if (!text.empty() && std::ranges::find(list, text) == list.end()) list.push_back(std::move(text));
}

/// What a line costs: a cause's words, told apart from work where the GPU waits for it.
std::string cost_words(const Report& report, const std::string& what) {
  const auto& causes = report.explanation().causes;
  const auto cause = std::ranges::find(causes, what, &model::Cause::id);
  const bool has_lane = report.explanation().gpu_busy_ms.has_value();
  const bool idle = has_lane && cause != causes.end() && !cause->gpu_busy;
  return idle ? report.say("run_gpu_idle") + ": " + report.say(what) : report.say(what);
}

Margins margins_of(const Report& report, const std::string& file) {
  Margins margins;
  for (const auto& line : report.explanation().lines) {
    if (line.site.file != file || line.site.line <= 0) continue;
    auto& margin = margins[static_cast<std::size_t>(line.site.line)];
    margin.ms += line.ms;
    once(margin.what, cost_words(report, line.what));
  }
  for (const auto& finding : report.explanation().findings) {
    if (finding.file != file || finding.line <= 0) continue;
    margins[static_cast<std::size_t>(finding.line)].findings.push_back(
        fmt::format("<a href=\"#{}\">{}</a>", report.anchor(finding), html_escaped(finding.id)));
  }
  return margins;
}

int heat(double ms, double largest) {
  return ms <= 0 ? 0 : std::clamp(static_cast<int>(std::ceil(kHeats * std::sqrt(share_of(ms, largest)))), 1, kHeats);
}

/// Draws one file: a row per line, folded where nothing costs.
class File {
 public:
  File(const Report& report, const std::string& file, double largest)
      : report_(report),
        file_(file),
        largest_(largest),
        code_(code_html(report.source(file))),
        margins_(margins_of(report, file)) {}

  std::string draw() const {
    double sum = 0;
    for (const auto& [number, margin] : margins_) sum += margin.ms;
    auto out = fmt::format("<section class=\"file\">\n<h3><code>{}</code>{}</h3>\n<div class=\"code\">\n",
                           html_escaped(place_of(report_.explanation().info, file_, 0)),
                           sum > 0 ? fmt::format(" <span class=\"soft\">{}</span>", milliseconds(sum)) : "");
    for (std::size_t line = 1; line <= code_.size();) {
      if (is_shown(line)) {
        out += row(line++);
        continue;
      }
      auto end = line;
      while (end <= code_.size() && !is_shown(end)) ++end;
      out += end - line < kShortestFold ? rows(line, end) : fold(line, end);
      line = end;
    }
    return out + "</div>\n</section>\n";
  }

 private:
  bool is_shown(std::size_t line) const {
    if (code_.size() <= kShownWhole) return true;
    const auto next = margins_.lower_bound(line > kAround ? line - kAround : 1);
    return next != margins_.end() && next->first <= line + kAround;
  }

  std::string rows(std::size_t first, std::size_t end) const {
    std::string out;
    for (auto line = first; line < end; ++line) out += row(line);
    return out;
  }

  std::string fold(std::size_t first, std::size_t end) const {
    const auto name = report_.say("run_lines_folded", {{"value", fmt::format("{}–{}", first, end - 1)}});
    if (end - first > kLongestFold) return fmt::format("<p class=\"fold soft\">{}</p>\n", name);
    return fmt::format("<details class=\"fold\"><summary>{}</summary>\n{}</details>\n", name, rows(first, end));
  }

  std::string row(std::size_t line) const {
    const auto at = margins_.find(line);
    const auto anchor = report_.anchor(file_, static_cast<int>(line));
    if (at == margins_.end())
      return fmt::format(
          "<div class=\"row\" id=\"{}\"><span class=\"ms\"></span><span class=\"no\">{}</span><code>{}</code></div>\n",
          anchor, line, code_[line - 1]);
    const auto& margin = at->second;
    auto notes = base::join(margin.what, ", ");
    for (const auto& link : margin.findings) notes += (notes.empty() ? "" : " · ") + link;
    return fmt::format(
        "<div class=\"row heat{}\" id=\"{}\"><span class=\"ms\">{}</span><span class=\"no\">{}</span><code>{}</code>"
        "<span class=\"what\">{}</span></div>\n",
        heat(margin.ms, largest_), anchor, margin.ms > 0 ? fixed(margin.ms, decimals_for(report_.step_ms())) : "", line,
        code_[line - 1], notes);
  }

  const Report& report_;
  const std::string& file_;
  double largest_;
  std::vector<std::string> code_;
  Margins margins_;
};

}  // namespace

std::string source(const Report& report) {
  if (report.files().empty()) return {};
  double largest = 0;
  for (const auto& file : report.files()) {
    for (const auto& [number, margin] : margins_of(report, file)) largest = std::max(largest, margin.ms);
  }
  auto out = heading(report, "source", "run_source");
  for (const auto& file : report.files()) out += File(report, file, largest).draw();
  return out;
}

}  // namespace fullwatt::show::html_parts
