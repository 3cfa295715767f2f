#include <fmt/format.h>

#include "fullwatt/show/doctor.hpp"
#include "fullwatt/show/html.hpp"
#include "fullwatt/show/version.hpp"
#include "fullwatt/show/words.hpp"

namespace fullwatt::show {
namespace {

using model::Finding;
using State = model::LayerStatus::State;

std::string say(std::string_view key, catalog::Language language) {
  return html_escaped(catalog::label(key, language));
}

std::string_view state_symbol(State state) {
  return state == State::works      ? "✓"
         : state == State::degraded ? "!"
         : state == State::broken   ? "✗"
         : state == State::unknown  ? "?"
                                    : "–";
}

std::string layers(const model::Diagnosis& diagnosis, catalog::Language language) {
  std::string out = "<table class=\"layers\">\n";
  for (const auto& status : diagnosis.layers) {
    out +=
        fmt::format("<tr><td class=\"state {0}\" title=\"{0}\">{1}</td><th scope=\"row\">{2}</th><td>{3}</td></tr>\n",
                    to_string(status.state), state_symbol(status.state), say(to_string(status.layer), language),
                    html_escaped(status.summary));
  }
  return out + "</table>\n";
}

std::string evidence(const Finding& finding) {
  std::string out = "<dl class=\"seen\">\n";
  for (const auto& seen : finding.evidence) {
    out += fmt::format("<div><dt>{}</dt><dd><code>{}</code>{}</dd></div>\n", html_escaped(seen.what),
                       html_escaped(seen.value),
                       seen.where.empty() ? "" : " <span class=\"soft\">" + html_escaped(seen.where) + "</span>");
  }
  return out + "</dl>\n";
}

std::string article(const Finding& finding, catalog::Language language) {
  const auto words = render(finding, language);
  std::string out =
      fmt::format("<article class=\"{}\" id=\"{}\">\n<h3>{} <span class=\"id\">{} · {}{}</span></h3>\n<p>{}</p>\n",
                  to_string(finding.severity), html_escaped(finding.id), html_escaped(words.title),
                  say(to_string(finding.severity), language), html_escaped(finding.id),
                  finding.confidence == model::Confidence::possible ? " · " + say("possible", language) : "",
                  html_escaped(words.cause));
  if (!finding.consequence_of.empty()) {
    out += fmt::format("<p class=\"soft\">{} <a href=\"#{}\">{}</a></p>\n", say("because_of", language),
                       html_escaped(finding.consequence_of), html_escaped(finding.consequence_of));
  }
  if (!finding.evidence.empty()) out += evidence(finding);
  if (finding.consequence_of.empty()) {
    out += "<ol>\n";
    for (const auto& step : words.remedy) {
      out += fmt::format("<li>{}{}</li>\n", html_escaped(step.text),
                         step.run.empty() ? "" : "<pre>" + html_escaped(step.run) + "</pre>");
    }
    out += "</ol>\n";
  }
  return out + "</article>\n";
}

std::string section(std::string_view key, const std::vector<const Finding*>& findings, catalog::Language language) {
  if (findings.empty()) return {};
  std::string out = fmt::format("<h2>{}</h2>\n", say(key, language));
  for (const auto* finding : findings) out += article(*finding, language);
  return out;
}

std::string checks(const model::Diagnosis& diagnosis, catalog::Language language) {
  std::string out =
      fmt::format("<details><summary>{} {}</summary>\n<ul>\n", diagnosis.checks.size(), say("checks", language));
  for (const auto& check : diagnosis.checks) {
    out += fmt::format("<li><code>{}</code> {}{}</li>\n", html_escaped(check.id), to_string(check.status),
                       check.reason.empty() ? "" : " <span class=\"soft\">" + html_escaped(check.reason) + "</span>");
  }
  return out + "</ul></details>\n";
}

std::string problems(const model::Machine& machine, catalog::Language language) {
  if (machine.problems.empty()) return {};
  std::string out = fmt::format("<h2>{}</h2>\n<ul>\n", say("not_examined", language));
  for (const auto& problem : machine.problems)
    out += fmt::format("<li>{}: {}</li>\n", html_escaped(problem.probe), html_escaped(problem.what));
  return out + "</ul>\n";
}

}  // namespace

std::string doctor_html(const DoctorReport& report, catalog::Language language) {
  const auto grouped = group(report.diagnosis);
  auto body = fmt::format("<h1>{}</h1>\n<p class=\"lead\">{}</p>\n", say("report", language),
                          html_escaped(closing_sentence(report, language)));
  body += layers(report.diagnosis, language);
  if (grouped.root != nullptr) body += section("root_cause", {grouped.root}, language);
  body += section("also_wrong", grouped.wrong, language);
  body += section("follows", grouped.follows, language);
  body += section("good_to_know", grouped.notes, language);
  body += problems(report.machine, language);
  body += checks(report.diagnosis, language);
  body += fmt::format("<p class=\"soft\">fullwatt {}, {:.2f} s</p>\n", kVersion, report.seconds);
  return html_page({.title = catalog::label("report", language),
                    .language = language == catalog::Language::zh ? "zh" : "en",
                    .body = body});
}

}  // namespace fullwatt::show
