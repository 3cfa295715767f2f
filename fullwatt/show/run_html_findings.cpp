#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/html.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/run_html_parts.hpp"
#include "fullwatt/show/run_words.hpp"

namespace fullwatt::show::html_parts {
namespace {

using model::Finding;

std::string price(const Report& report, const Finding& finding) {
  if (const double gain = finding.best_gain_ms(); gain > 0) {
    const auto factor = speedup(report.step_ms(), finding);
    return fmt::format("<span class=\"price\">{} <small>{}</small></span>",
                       report.say(saving_label(finding), {{"gain", milliseconds(gain)}}), factor ? times(*factor) : "");
  }
  if (!finding.charged_ms) return {};
  return fmt::format("<span class=\"price plain\">{}</span>",
                     report.say("run_charged", {{"gain", milliseconds(*finding.charged_ms)}}));
}

std::string origin(const Report& report, const Finding& finding) {
  std::vector<std::string> parts;
  if (const auto place = report.place(finding.file, finding.line); !place.empty()) parts.push_back(place);
  parts.push_back(report.say(to_string(finding.layer)));
  parts.push_back(report.say(to_string(finding.confidence)));
  parts.push_back("<code>" + html_escaped(finding.id) + "</code>");
  if (!finding.consequence_of.empty())
    parts.push_back(fmt::format("{} <a href=\"#{}\">{}</a>", report.say("because_of"),
                                report.anchor(finding.consequence_of), html_escaped(finding.consequence_of)));
  return base::join(parts, " · ");
}

std::string evidence(const Finding& finding) {
  if (finding.evidence.empty()) return {};
  std::string out = "<dl class=\"seen\">\n";
  for (const auto& seen : finding.evidence)
    out += fmt::format("<div><dt>{}</dt><dd><code>{}</code>{}</dd></div>\n", html_escaped(seen.what),
                       html_escaped(seen.value),
                       seen.where.empty() ? "" : " <span class=\"soft\">" + html_escaped(seen.where) + "</span>");
  return out + "</dl>\n";
}

std::string remedy(const Rendered& words) {
  if (words.remedy.empty()) return {};
  std::string out = "<ol class=\"remedy\">\n";
  for (const auto& step : words.remedy)
    out += fmt::format("<li>{}{}</li>\n", html_escaped(step.text),
                       step.run.empty() ? "" : "<pre>" + html_escaped(step.run) + "</pre>");
  return out + "</ol>\n";
}

std::string card(const Report& report, const Finding& finding) {
  const auto words = render(finding, report.language());
  return fmt::format(
      "<article class=\"{}\" id=\"{}\">\n<h3><span>{}</span>{}</h3>\n<p "
      "class=\"origin\">{}</p>\n<p>{}</p>\n{}{}</article>\n",
      to_string(finding.severity), report.anchor(finding), html_escaped(words.title), price(report, finding),
      origin(report, finding), html_escaped(words.cause), evidence(finding), remedy(words));
}

bool is_aside(const Finding& finding) {
  const bool gains = finding.best_gain_ms() > 0;
  return !finding.consequence_of.empty() || (!gains && finding.severity < model::Severity::warning);
}

}  // namespace

std::string findings(const Report& report) {
  std::string main;
  std::string aside;
  std::size_t asides = 0;
  for (const auto& finding : report.explanation().findings) {
    (is_aside(finding) ? aside : main) += card(report, finding);
    asides += is_aside(finding) ? 1 : 0;
  }
  if (main.empty() && aside.empty()) return {};
  auto out = heading(report, "findings", "run_findings") + main;
  if (!aside.empty())
    out += fmt::format("<details class=\"aside\"><summary>{} ({})</summary>\n{}</details>\n",
                       report.say("run_more_findings"), asides, aside);
  return out;
}

}  // namespace fullwatt::show::html_parts
