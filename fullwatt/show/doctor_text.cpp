#include <algorithm>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/doctor.hpp"
#include "fullwatt/show/page.hpp"
#include "fullwatt/show/words.hpp"

namespace fullwatt::show {
namespace {

using model::Finding;
using model::LayerStatus;

Mark mark_of(LayerStatus::State state) {
  switch (state) {
    case LayerStatus::State::works:
      return {"✓", "[ok]", Ink::green};
    case LayerStatus::State::degraded:
      return {"!", "[!]", Ink::yellow};
    case LayerStatus::State::broken:
      return {"✗", "[x]", Ink::red};
    case LayerStatus::State::not_applicable:
      return {"–", "[-]", Ink::dim};
    case LayerStatus::State::unknown:
      break;
  }
  return {"?", "[?]", Ink::dim};
}

void layers(Page& page, const model::Diagnosis& diagnosis) {
  int label_width = 0;
  for (const auto& status : diagnosis.layers)
    label_width = std::max(label_width, display_width(page.say(to_string(status.layer))));
  for (const auto& status : diagnosis.layers) {
    const auto name = page.say(to_string(status.layer));
    const auto padding = std::string(static_cast<std::size_t>(label_width - display_width(name) + 2), ' ');
    page.line(fmt::format("  {} {}{}{}", page.symbol(mark_of(status.state)), name, padding,
                          base::printable(status.summary, 200)));
  }
}

std::string title_line(Page& page, const Finding& finding, const Rendered& words) {
  auto title = fmt::format("{} {}", page.symbol(severity_mark(finding.severity)),
                           paint(page.style(), Ink::bold, plain_symbols(page.style(), words.title)));
  if (finding.confidence == model::Confidence::possible) title += " (" + page.say("possible") + ")";
  return title + "  " + paint(page.style(), Ink::dim, finding.id);
}

void evidence(Page& page, const Finding& finding, std::size_t limit) {
  std::size_t shown = 0;
  for (const auto& seen : finding.evidence) {
    if (shown++ == limit) {
      page.entry("", fmt::format("… {} more", finding.evidence.size() - limit), Ink::dim);
      return;
    }
    auto text = fmt::format("{} = {}", base::printable(seen.what, 120), base::printable(seen.value, 300));
    if (!seen.where.empty()) text += "  (" + base::printable(seen.where, 200) + ")";
    page.entry(shown == 1 ? page.say("seen") : "", text);
  }
}

void in_full(Page& page, const Finding& finding, bool verbose) {
  const auto words = render(finding, page.style().language);
  page.line(title_line(page, finding, words));
  page.entry(page.say("why"), words.cause);
  evidence(page, finding, verbose ? 100 : 4);
  int number = 0;
  for (const auto& step : words.remedy) {
    ++number;
    page.entry(number == 1 ? page.say("remedy") : "", fmt::format("{}. {}", number, step.text));
    if (!step.run.empty()) page.command(step.run);
  }
  page.entry(page.say("more"), "fullwatt explain " + finding.id);
}

void in_short(Page& page, const Finding& finding) {
  auto text = title_line(page, finding, render(finding, page.style().language));
  if (!finding.consequence_of.empty())
    text += paint(page.style(), Ink::dim, fmt::format("  ({} {})", page.say("because_of"), finding.consequence_of));
  page.line(text);
}

void problems(Page& page, const model::Machine& machine) {
  if (machine.problems.empty()) return;
  page.heading("not_examined");
  for (const auto& problem : machine.problems) {
    page.line(fmt::format("{} {}: {}", page.symbol({"?", "[?]", Ink::yellow}), base::printable(problem.probe, 80),
                          base::printable(problem.what, 300)));
  }
}

void footer(Page& page, const DoctorReport& report) {
  using Status = model::CheckResult::Status;
  const auto count = [&](Status status) {
    return std::ranges::count(report.diagnosis.checks, status, &model::CheckResult::status);
  };
  page.blank();
  const bool bad = !report.diagnosis.root_cause.empty();
  page.line(paint(page.style(), bad ? Ink::red : Ink::green,
                  plain_symbols(page.style(), closing_sentence(report, page.style().language))));
  auto text = fmt::format("{} {}, {} {}", report.diagnosis.checks.size(), page.say("checks"), count(Status::skipped),
                          page.say("skipped"));
  if (count(Status::broken) > 0) text += fmt::format(", {} {}", count(Status::broken), page.say("broken"));
  page.line(paint(page.style(), Ink::dim, fmt::format("{}, {:.2f} s", text, report.seconds)));
}

void skipped(Page& page, const model::Diagnosis& diagnosis) {
  page.heading("skipped");
  for (const auto& check : diagnosis.checks) {
    if (!check.reason.empty()) page.line(fmt::format("  {}: {}", check.id, base::printable(check.reason, 200)));
  }
}

}  // namespace

std::string doctor_text(const DoctorReport& report, const Style& style, bool verbose) {
  Page page(style);
  const auto grouped = group(report.diagnosis);
  layers(page, report.diagnosis);
  if (grouped.root != nullptr) {
    page.heading("root_cause");
    in_full(page, *grouped.root, verbose);
  }
  if (!grouped.wrong.empty()) page.heading("also_wrong");
  for (const auto* finding : grouped.wrong) in_full(page, *finding, verbose);
  if (!grouped.follows.empty()) page.heading("follows");
  for (const auto* finding : grouped.follows) in_short(page, *finding);
  if (!grouped.notes.empty()) page.heading("good_to_know");
  for (const auto* finding : grouped.notes) verbose ? in_full(page, *finding, true) : in_short(page, *finding);
  problems(page, report.machine);
  if (verbose) skipped(page, report.diagnosis);
  footer(page, report);
  return page.take();
}

}  // namespace fullwatt::show
