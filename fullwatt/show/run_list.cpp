#include "fullwatt/show/run_list.hpp"

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/page.hpp"
#include "fullwatt/show/text_table.hpp"

namespace fullwatt::show {
namespace {

/// "2026-11-15 16:20" of "2026-11-15T16:20:00Z".
std::string minutes(std::string text) {
  if (text.size() >= 16 && text[10] == 'T') {
    text[10] = ' ';
    text.resize(16);
  }
  return base::printable(text, 20);
}

}  // namespace

std::string run_list(const std::vector<RunRow>& rows, const Style& style) {
  using Align = TextTable::Align;
  Page page(style);
  if (rows.empty()) page.paragraph(page.say("run_list_empty"));
  TextTable table(style, {{page.say("run_list_id")},
                          {page.say("run_list_when")},
                          {page.say("run_list_steps"), Align::right},
                          {page.say("run_list_step_ms"), Align::right},
                          {page.say("run_list_verdict"), Align::left, true},
                          {page.say("run_list_command"), Align::left, true}});
  for (const auto& row : rows)
    table.row(
        {{base::printable(row.id, 60), Ink::bold},
         {minutes(row.started)},
         {counted(row.steps)},
         {row.step_ms ? figure(*row.step_ms) : "–"},
         {row.verdict.empty() ? "–" : base::printable(row.verdict, 60), row.verdict.empty() ? Ink::dim : Ink::yellow},
         {base::printable(row.command, 200), Ink::dim}});
  if (!table.empty()) page.lines(table.lines(0));
  return page.take();
}

}  // namespace fullwatt::show
