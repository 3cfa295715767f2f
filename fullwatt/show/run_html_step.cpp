#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "fullwatt/show/html.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/run_html_parts.hpp"
#include "fullwatt/show/run_words.hpp"
#include "fullwatt/show/style.hpp"

namespace fullwatt::show::html_parts {
namespace {

using model::Cause;

constexpr double kWide = 0.25;  ///< parts from this share on have room for text on a telephone too

constexpr std::array<std::string_view, 31> kKinds{
    "data-wait",     "copy-wait",         "sync-drain",    "launch-bound",    "python",        "allocator",
    "module-load",   "garbage",           "compile",       "checkpoint",      "evaluation",    "forward",
    "backward",      "optimizer",         "gpu-matmul",    "gpu-convolution", "gpu-attention", "gpu-elementwise",
    "gpu-reduction", "gpu-normalisation", "gpu-optimizer", "gpu-softmax",     "gpu-embedding", "gpu-rnn",
    "gpu-copy",      "gpu-communication", "gpu-other",     "gpu-copy-h2d",    "gpu-copy-d2h",  "unexplained",
    "fullwatt"};

bool is_known(std::string_view id) {
  return std::ranges::find(kKinds, id) != kKinds.end();
}

/// One coloured part with its name and length, where there is room for them.
std::string segment(const Cause& cause, double start, double share, const std::string& name, const std::string& ms) {
  auto out = fmt::format(
      "<svg x=\"{:.3f}%\" width=\"{:.3f}%\" height=\"44\" class=\"{}{}\"><title>{} {}</title>"
      "<rect width=\"100%\" height=\"44\" fill=\"currentColor\"/>",
      start * 100, share * 100, kind_class(cause.id),
      share >= kWide   ? " wide edge"
      : share >= kEdge ? " edge"
                       : "",
      name, ms);
  const bool named = fits(name, share);
  if (named) out += fmt::format("<text x=\"8\" y=\"19\">{}</text>", name);
  if (fits(ms, share)) out += fmt::format("<text class=\"length\" x=\"8\" y=\"{}\">{}</text>", named ? 35 : 27, ms);
  return out + "</svg>\n";
}

/// A line over the parts of one kind; its text may be longer than it, so the right one is aligned to the right.
std::string bracket(double start, double share, const std::string& text, bool right) {
  return fmt::format(
      "<svg x=\"{:.3f}%\" width=\"{:.3f}%\" height=\"22\"><text x=\"{}\" y=\"12\" text-anchor=\"{}\">{}</text>"
      "<line x1=\"0\" x2=\"100%\" y1=\"18.5\" y2=\"18.5\"/></svg>\n",
      start * 100, share * 100, right ? "100%" : "0", right ? "end" : "start", text);
}

std::string bar(const Report& report, const CauseGroups& groups) {
  const auto step = report.step_ms();
  const auto decimals = decimals_for(step);
  const int top = groups.busy.empty() ? 0 : 24;
  auto out = fmt::format("<svg class=\"bar\" width=\"100%\" height=\"{}\" role=\"img\" aria-label=\"{}\">\n", top + 46,
                         html_escaped(headline(report.explanation(), report.language())));
  const auto total = [&](std::string_view key, double ms) {
    return fmt::format("{} {} ms · {}", report.say(key), fixed(ms, decimals),
                       html_escaped(percent(share_of(ms, step))));
  };
  const auto idle = share_of(groups.idle_ms, step);
  if (!groups.busy.empty()) {
    out += "<g class=\"brackets\">\n";
    if (idle > 0.02) out += bracket(0, idle - 0.002, total("run_gpu_idle", groups.idle_ms), false);
    out += bracket(idle, 1 - idle, total("run_gpu_busy", groups.busy_ms), true) + "</g>\n";
  }
  double start = 0;
  out += fmt::format("<svg y=\"{}\" width=\"100%\" height=\"44\" class=\"parts\">\n", top);
  for (const auto* list : {&groups.idle, &groups.busy}) {
    for (const auto* cause : *list) {
      const auto share = share_of(cause->charged_ms, step);
      out += segment(*cause, start, share, report.say(cause->id), fixed(cause->charged_ms, decimals) + " ms");
      start += share;
    }
  }
  return out + "</svg>\n</svg>\n";
}

std::string number_cell(const std::optional<double>& value, int decimals) {
  return value && *value > 0 ? fixed(*value, decimals) : std::string{};
}

std::string lines_of(const Report& report, const Cause& cause) {
  constexpr std::size_t kShown = 3;
  std::string out;
  for (std::size_t i = 0; i < std::min(kShown, cause.lines.size()); ++i) {
    const auto& line = cause.lines[i];
    if (!line.site.known()) continue;
    out += fmt::format("{}{} <span class=\"soft\">{}</span>", out.empty() ? "" : "<br>",
                       report.place(line.site.file, line.site.line),
                       cause.lines.size() > 1 ? milliseconds(line.ms) : html_escaped(line.site.function));
  }
  return out;
}

std::string cause_row(const Report& report, const Cause& cause) {
  const auto decimals = decimals_for(report.step_ms());
  return fmt::format(
      "<tr><th scope=\"row\"><i class=\"swatch {}\"></i>{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td>"
      "<td class=\"n gain\">{}</td><td class=\"n gain\">{}</td><td>{}</td></tr>\n",
      kind_class(cause.id), report.say(cause.id), fixed(cause.charged_ms, decimals),
      html_escaped(percent(share_of(cause.charged_ms, report.step_ms()))), number_cell(cause.gain_alone_ms, decimals),
      number_cell(cause.gain_after_ms, decimals), lines_of(report, cause));
}

std::string total_row(const Report& report, std::string_view key, double ms, std::string_view css) {
  return fmt::format(
      "<tr class=\"{}\"><th scope=\"row\">{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td></td><td></td>"
      "<td></td></tr>\n",
      css, report.say(key), fixed(ms, decimals_for(report.step_ms())),
      html_escaped(percent(share_of(ms, report.step_ms()))));
}

std::string cause_table(const Report& report, const CauseGroups& groups) {
  auto out = fmt::format(
      "<div class=\"scroll\"><table class=\"causes\">\n<thead><tr><th scope=\"col\">{}</th><th scope=\"col\" "
      "class=\"n\">{}</th><th scope=\"col\" class=\"n\">{}</th><th scope=\"col\" class=\"n\">{}</th><th scope=\"col\" "
      "class=\"n\">{}</th><th scope=\"col\">{}</th></tr></thead>\n<tbody>\n",
      report.say("run_cause"), report.say("run_ms"), report.say("run_share"), report.say("run_gain"),
      report.say("run_gain_after"), report.say("run_where"));
  const bool grouped = !groups.busy.empty();
  if (grouped) out += total_row(report, "run_gpu_idle", groups.idle_ms, "group");
  for (const auto* cause : groups.idle) out += cause_row(report, *cause);
  if (grouped) out += total_row(report, "run_gpu_busy", groups.busy_ms, "group");
  for (const auto* cause : groups.busy) out += cause_row(report, *cause);
  return out + total_row(report, "run_sum", report.step_ms(), "sum") + "</tbody></table></div>\n";
}

}  // namespace

bool fits(std::string_view text, double share) {
  constexpr double kPage = 1100;
  constexpr double kCharacter = 7.6;
  return display_width(text) * kCharacter + 14 <= share * kPage;
}

std::string kind_class(std::string_view id) {
  if (is_known(id)) return "k-" + std::string(id);
  const auto kernel = "gpu-" + std::string(id);
  return is_known(kernel) ? "k-" + kernel : "k-unexplained";
}

std::string step(const Report& report) {
  const auto groups = cause_groups(report.explanation());
  if (report.explanation().steps == 0 || (groups.idle.empty() && groups.busy.empty())) return {};
  auto out = heading(report, "step", "run_where_it_goes");
  out += fmt::format("<p class=\"soft\">{}</p>\n", html_escaped(step_spread(report.explanation(), report.language())));
  out += bar(report, groups) + cause_table(report, groups);
  for (const auto& sentence : outlook(report.explanation(), report.language()))
    out += fmt::format("<p>{}</p>\n", html_escaped(sentence));
  return out;
}

}  // namespace fullwatt::show::html_parts
