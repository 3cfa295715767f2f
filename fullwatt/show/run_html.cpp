#include "fullwatt/show/run_html.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/html.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/run_html_parts.hpp"
#include "fullwatt/show/run_words.hpp"
#include "fullwatt/show/version.hpp"

namespace fullwatt::show {
namespace html_parts {
namespace {

std::vector<std::string> files_by_cost(const model::Explanation& explanation, const Sources& sources) {
  std::map<std::string, double> cost;
  for (const auto& line : explanation.lines) cost[line.site.file] += line.ms;
  for (const auto& finding : explanation.findings) cost.try_emplace(finding.file, 0.0);
  std::vector<std::string> files;
  for (const auto& [file, ms] : cost) {
    if (sources.contains(file)) files.push_back(file);
  }
  std::ranges::stable_sort(files, [&](const auto& a, const auto& b) { return cost[a] > cost[b]; });
  return files;
}

}  // namespace

Report::Report(const model::Explanation& explanation, const Sources& sources, Language language)
    : explanation_(explanation),
      sources_(sources),
      language_(language),
      step_ms_(step_length(explanation)),
      files_(files_by_cost(explanation, sources)) {}

std::string Report::say(std::string_view key) const {
  return html_escaped(catalog::label(key, language_));
}

std::string Report::say(std::string_view key, const Facts& facts) const {
  return html_escaped(fill(catalog::label(key, language_), facts));
}

std::string Report::anchor(const model::Finding& finding) const {
  return fmt::format("finding-{}", &finding - explanation_.findings.data() + 1);
}

std::string Report::anchor(std::string_view finding_id) const {
  const auto* finding = explanation_.find(finding_id);
  return finding == nullptr ? std::string{} : anchor(*finding);
}

std::string Report::anchor(std::string_view file, int line) const {
  const auto at = std::ranges::find(files_, file);
  return at == files_.end() || line <= 0 ? std::string{} : fmt::format("f{}-{}", at - files_.begin() + 1, line);
}

std::string Report::place(std::string_view file, int line) const {
  const auto text = html_escaped(place_of(explanation_.info, file, line));
  if (text.empty()) return {};
  const auto target = anchor(file, line);
  return target.empty() ? fmt::format("<code>{}</code>", text)
                        : fmt::format("<a class=\"place\" href=\"#{}\"><code>{}</code></a>", target, text);
}

std::string heading(const Report& report, std::string_view id, std::string_view label) {
  return fmt::format("<h2 id=\"{}\">{}</h2>\n", id, report.say(label));
}

}  // namespace html_parts

namespace {

using html_parts::Report;

std::string header(const Report& report) {
  const auto& explanation = report.explanation();
  auto out =
      fmt::format("<header>\n<p class=\"eyebrow\">fullwatt · {} · {} · <time>{}</time></p>\n<h1>{}</h1>\n",
                  report.say("run_report"), html_escaped(explanation.info.id), html_escaped(explanation.info.started),
                  html_escaped(headline(explanation, report.language())));
  if (const auto change = first_change(explanation, report.language()); !change.empty())
    out += fmt::format("<p class=\"lead\">{}</p>\n", html_escaped(change));
  if (const auto missing = no_kernels(explanation, report.language()); !missing.empty())
    out += fmt::format("<p class=\"notice\">{}</p>\n", html_escaped(missing));
  return out + fmt::format("<pre class=\"command\">{}</pre>\n</header>\n",
                           html_escaped(base::shell_line(explanation.info.command)));
}

std::string tile(const std::string& name, const std::string& value, const std::string& more) {
  return fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n", name, html_escaped(value),
                     html_escaped(more));
}

std::string tiles(const Report& report) {
  const auto& explanation = report.explanation();
  if (explanation.steps == 0) return {};
  const auto step = report.step_ms();
  std::string out = "<dl class=\"tiles\">\n";
  out += tile(report.say("run_step_time"), milliseconds(step),
              fmt::format("{}–{} ms", figure(explanation.step_ms.p05), figure(explanation.step_ms.p95)));
  if (explanation.gpu_busy_ms)
    out += tile(report.say("run_gpu_busy"), percent(share_of(*explanation.gpu_busy_ms, step)),
                milliseconds(*explanation.gpu_busy_ms));
  if (explanation.samples_per_second)
    out += tile(report.say("run_speed"), figure(*explanation.samples_per_second),
                explanation.samples_per_step ? fill(catalog::label("run_a_step", report.language()),
                                                    {{"value", figure(*explanation.samples_per_step)}})
                                             : std::string{});
  for (const auto& use : explanation.resources) {
    if (use.id == "power" && use.used)
      out += tile(
          report.say("run_power"), figure(*use.used) + " " + use.unit,
          use.limit ? fill(catalog::label("run_of", report.language()),
                           {{"value", percent(*use.used / *use.limit)}, {"limit", figure(*use.limit) + " " + use.unit}})
                    : std::string{});
  }
  if (const auto left = reachable_ms(explanation))
    out += tile(report.say("run_within_reach"), milliseconds(*left), times(step / *left));
  return out + "</dl>\n";
}

std::string without_steps(const Report& report) {
  if (report.explanation().steps > 0) return {};
  const auto words = no_steps(report.explanation(), report.language());
  auto out = html_parts::heading(report, "seen", "run_was_seen") +
             fmt::format("<p>{}</p>\n", html_escaped(words.seen)) +
             html_parts::heading(report, "do", "run_what_to_do") + "<ol>\n";
  for (const auto& step : words.advice)
    out += fmt::format("<li>{}{}</li>\n", html_escaped(step.text),
                       step.run.empty() ? "" : "<pre>" + html_escaped(step.run) + "</pre>");
  return out + "</ol>\n";
}

/// Links to the sections that are there.
std::string navigation(const Report& report, const std::string& body) {
  constexpr std::pair<const char*, const char*> kSections[] = {
      {"step", "nav_step"},           {"findings", "nav_findings"}, {"course", "nav_course"},
      {"resources", "nav_resources"}, {"kernels", "nav_kernels"},   {"settings", "nav_settings"},
      {"source", "nav_source"},       {"facts", "nav_facts"}};
  std::string out = "<nav>";
  for (const auto& [id, label] : kSections) {
    if (body.find(fmt::format("<h2 id=\"{}\"", id)) != std::string::npos)
      out += fmt::format("<a href=\"#{}\">{}</a>", id, report.say(label));
  }
  return out + "</nav>\n";
}

std::string footer(const Report& report) {
  std::string out = "<footer>\n";
  if (!report.explanation().remarks.empty()) {
    out += html_parts::heading(report, "remarks", "run_remarks") + "<ul>\n";
    for (const auto& remark : report.explanation().remarks)
      out += fmt::format("<li>{}</li>\n", html_escaped(remark_text(remark, report.language())));
    out += "</ul>\n";
  }
  for (const auto& sentence : own_account(report.explanation(), report.language()))
    out += fmt::format("<p class=\"soft\">{}</p>\n", html_escaped(sentence));
  return out + fmt::format("<p class=\"soft\">fullwatt {}</p>\n</footer>\n", kVersion);
}

}  // namespace

std::string run_html(const model::Explanation& explanation, const std::map<std::string, std::string>& sources,
                     catalog::Language language) {
  const Report report(explanation, sources, language);
  std::string sections = without_steps(report);
  for (const auto part : {html_parts::step, html_parts::waterfall, html_parts::findings, html_parts::course,
                          html_parts::resources, html_parts::kernels, html_parts::fixes, html_parts::settings,
                          html_parts::between, html_parts::ranks, html_parts::source, html_parts::facts})
    sections += part(report);
  const auto body = header(report) + tiles(report) + navigation(report, sections) + "<main>\n" + sections +
                    "</main>\n" + footer(report);
  return html_page({.title = headline(explanation, language),
                    .language = language == Language::zh ? "zh" : "en",
                    .body = body,
                    .more_style = html_parts::kStyle,
                    .script = explanation.trend.size() > 1 ? html_parts::kScript : std::string_view{}});
}

}  // namespace fullwatt::show
