#include "fullwatt/show/run_text.hpp"

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/page.hpp"
#include "fullwatt/show/run_text_parts.hpp"
#include "fullwatt/show/run_words.hpp"
#include "fullwatt/show/text_table.hpp"

namespace fullwatt::show {
namespace {

using model::Explanation;

void top(Page& page, const Explanation& explanation) {
  const auto language = page.style().language;
  const auto name = base::printable("fullwatt run " + explanation.info.id, 80) + "  ";
  const auto command = base::printable(base::shell_line(explanation.info.command), 200);
  page.line(paint(page.style(), Ink::dim, name) +
            fitted(page.style(), command, page.style().width - display_width(name)));
  page.blank();
  page.paragraph(base::printable(headline(explanation, language)), Ink::bold);
  if (const auto change = first_change(explanation, language); !change.empty())
    page.paragraph(base::printable(change), explanation.verdict.empty() ? Ink::green : Ink::plain);
  if (const auto missing = no_kernels(explanation, language); !missing.empty())
    page.paragraph(base::printable(missing), Ink::yellow);
}

void without_steps(Page& page, const Explanation& explanation) {
  const auto words = no_steps(explanation, page.style().language);
  page.heading("run_was_seen");
  page.paragraph(words.seen, Ink::plain, 2);
  page.heading("run_what_to_do");
  for (const auto& step : words.advice) {
    page.marked({"–", "-", Ink::plain}, step.text);
    if (!step.run.empty()) page.command(step.run);
  }
}

void remarks(Page& page, const Explanation& explanation) {
  if (explanation.remarks.empty()) return;
  page.heading("run_remarks");
  for (const auto& remark : explanation.remarks)
    page.marked({"–", "-", Ink::plain}, base::printable(remark_text(remark, page.style().language)));
}

void closing(Page& page, const Explanation& explanation, const std::string& report_file) {
  const auto& style = page.style();
  page.blank();
  const auto account = own_account(explanation, style.language);
  for (const auto& sentence : account) page.paragraph(sentence, Ink::dim);
  if (!account.empty()) page.blank();
  const auto id = base::printable(explanation.info.id, 80);
  const auto pointer = [&](std::string_view key, const std::string& target, Ink ink) {
    const auto name = page.say(key) + ": ";
    const bool fits = display_width(name) + display_width(target) <= style.width;
    page.line(paint(style, Ink::dim, name) + (fits ? "" : "\n  ") + paint(style, ink, target));
  };
  if (const auto* first = explanation.find(explanation.verdict); first != nullptr) {
    page.paragraph(fill(page.say("run_next"), {{"title", render(*first, style.language).title}}), Ink::bold);
    pointer("run_all_about", "fullwatt explain " + base::printable(first->id, 80), Ink::bold);
  }
  if (!report_file.empty()) pointer("run_full_report", base::printable(report_file), Ink::plain);
  pointer("run_shown_again", "fullwatt report " + id, Ink::plain);
}

}  // namespace

std::string run_text(const Explanation& explanation, const Style& style, const RunTextOptions& options) {
  Page page(style);
  top(page, explanation);
  if (explanation.steps == 0) without_steps(page, explanation);
  text_parts::step(page, explanation, options.verbose);
  text_parts::findings(page, explanation, options.verbose);
  text_parts::kernels(page, explanation, options.verbose);
  text_parts::resources(page, explanation, options.verbose);
  text_parts::fixes(page, explanation);
  text_parts::settings(page, explanation, options.verbose);
  text_parts::between(page, explanation);
  text_parts::ranks(page, explanation);
  text_parts::facts(page, explanation);
  remarks(page, explanation);
  closing(page, explanation, options.report_file);
  return page.take();
}

}  // namespace fullwatt::show
