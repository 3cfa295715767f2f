#include <fmt/format.h>

#include "fullwatt/show/doctor.hpp"
#include "fullwatt/show/markdown.hpp"
#include "fullwatt/show/version.hpp"
#include "fullwatt/show/words.hpp"

namespace fullwatt::show {
namespace {

std::string_view state_mark(model::LayerStatus::State state) {
  using State = model::LayerStatus::State;
  return state == State::works ? "✅" : state == State::degraded ? "⚠️" : state == State::broken ? "❌" : "➖";
}

void finding(std::string& out, const model::Finding& found, catalog::Language language) {
  const auto words = render(found, language);
  out += fmt::format("- **{}** ({}, {})\n", markdown_escaped(words.title), markdown_code(found.id),
                     catalog::label(to_string(found.severity), language));
  out += fmt::format("  - {}: {}\n", catalog::label("why", language), markdown_escaped(words.cause));
  for (const auto& seen : found.evidence) {
    out += fmt::format("  - {}: {} = {}{}\n", catalog::label("seen", language), markdown_escaped(seen.what),
                       markdown_code(seen.value), seen.where.empty() ? "" : " (" + markdown_code(seen.where) + ")");
  }
  for (const auto& step : words.remedy) {
    out += fmt::format("  - {}: {}{}\n", catalog::label("remedy", language), markdown_escaped(step.text),
                       step.run.empty() ? "" : " " + markdown_code(step.run));
  }
}

void section(std::string& out, std::string_view key, const std::vector<const model::Finding*>& findings,
             catalog::Language language) {
  if (findings.empty()) return;
  out += fmt::format("\n### {}\n", catalog::label(key, language));
  for (const auto* found : findings) finding(out, *found, language);
}

}  // namespace

std::string doctor_markdown(const DoctorReport& report, catalog::Language language) {
  std::string out = fmt::format("## fullwatt {}: {}\n\n", kVersion, catalog::label("report", language));
  out += "| | | |\n|---|---|---|\n";
  for (const auto& status : report.diagnosis.layers) {
    out += fmt::format("| {} | {} | {} |\n", state_mark(status.state),
                       catalog::label(to_string(status.layer), language), markdown_escaped(status.summary));
  }
  const auto grouped = group(report.diagnosis);
  if (grouped.root != nullptr) section(out, "root_cause", {grouped.root}, language);
  section(out, "also_wrong", grouped.wrong, language);
  section(out, "follows", grouped.follows, language);
  section(out, "good_to_know", grouped.notes, language);
  for (const auto& problem : report.machine.problems)
    out += fmt::format("\n- {}: {}\n", markdown_escaped(problem.probe), markdown_escaped(problem.what));
  return out + fmt::format("\n{}\n", markdown_escaped(closing_sentence(report, language)));
}

}  // namespace fullwatt::show
