#include <algorithm>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/bars.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/run_text_parts.hpp"
#include "fullwatt/show/run_words.hpp"
#include "fullwatt/show/text_table.hpp"

namespace fullwatt::show::text_parts {
namespace {

using model::Explanation;
using Align = TextTable::Align;

constexpr int kIndent = 2;
constexpr int kGauge = 20;
constexpr int kRoomForExamples = 90;
constexpr int kPercent = 9;  ///< columns of "   35 %  "

Ink ink_of(std::string_view resource, double share) {
  if (!is_rated(resource)) return Ink::blue;
  return share >= kWellUsed ? Ink::green : share >= kHardlyUsed ? Ink::yellow : Ink::red;
}

std::string amount(const Page& page, const model::ResourceUse& use) {
  if (use.unit == "%" && use.limit) return {};
  const auto used = figure(*use.used);
  const auto unit = base::printable(use.unit, 20);
  if (!use.limit) return fmt::format("{} {}", used, unit);
  return fill(page.say("run_of"), {{"value", used}, {"limit", fmt::format("{} {}", figure(*use.limit), unit)}});
}

std::string resource_name(const Page& page, const model::ResourceUse& use) {
  return base::printable(label_or("resource-", use.id, page.style().language), 40);
}

std::string with_place(const std::string& value, const std::string& place) {
  if (value.empty()) return "–";
  return base::printable(place.empty() ? value : fmt::format("{} ({})", value, place), 120);
}

}  // namespace

void kernels(Page& page, const Explanation& explanation, bool verbose) {
  if (explanation.kernels.empty()) return;
  page.heading("run_kernels");
  double whole = 0;
  for (const auto& group : explanation.kernels) whole += group.ms;
  const auto decimals = decimals_for(whole);
  std::vector<TextTable::Column> columns{{page.say("run_kind")},
                                         {page.say("run_precision")},
                                         {page.say("run_tensor_cores")},
                                         {page.say("run_ms"), Align::right},
                                         {page.say("run_share"), Align::right},
                                         {page.say("run_count"), Align::right}};
  const bool has_room = verbose && page.style().width >= kRoomForExamples;
  if (has_room) columns.push_back({page.say("run_example"), Align::left, true});
  TextTable table(page.style(), columns);
  for (const auto& group : explanation.kernels) {
    std::vector<TextTable::Cell> cells{
        {base::printable(page.say("gpu-" + group.kind), 40)},
        {group.precision.empty() ? "–" : base::printable(group.precision, 20)},
        {page.say(group.tensor_cores ? "run_yes" : "run_no"), group.tensor_cores ? Ink::green : Ink::dim},
        {fixed(group.ms, decimals)},
        {percent(share_of(group.ms, whole))},
        {figure(group.count)}};
    if (has_room) cells.push_back({base::printable(group.example, 200), Ink::dim});
    table.row(std::move(cells));
  }
  page.lines(table.lines(kIndent));
}

void resources(Page& page, const Explanation& explanation, bool verbose) {
  if (explanation.resources.empty()) return;
  page.heading("run_resources");
  const auto& style = page.style();
  int name_width = 0;
  for (const auto& use : explanation.resources)
    name_width = std::max(name_width, display_width(resource_name(page, use)));
  const auto room = std::max(kGauge, style.width - kIndent - name_width - 2 - kGauge - kPercent);
  for (const auto& use : explanation.resources) {
    const auto name = resource_name(page, use);
    auto text = std::string(kIndent, ' ') + name +
                std::string(static_cast<std::size_t>(name_width - display_width(name) + 2), ' ');
    if (use.used && use.limit) {
      const auto share = share_of(*use.used, *use.limit);
      text += gauge(style, share, kGauge, ink_of(use.id, share)) +
              fmt::format("  {:>5}  ", percent(*use.used / *use.limit));
    } else {
      text += std::string(kGauge + kPercent, ' ');
    }
    auto words = use.used ? amount(page, use) : "– " + base::printable(use.reason, 120);
    if (verbose && !use.source.empty()) words += (words.empty() ? "" : "; ") + base::printable(use.source, 120);
    text += paint(style, use.used ? Ink::plain : Ink::dim, fitted(style, words, room));
    page.line(std::string(text, 0, text.find_last_not_of(' ') + 1));
  }
}

void fixes(Page& page, const Explanation& explanation) {
  if (explanation.fixes.empty()) return;
  page.heading("run_fixes");
  TextTable table(page.style(),
                  {{page.say("run_fix")}, {page.say("run_state")}, {page.say("run_remark"), Align::left, true}});
  for (const auto& fix : explanation.fixes) {
    table.row({{base::printable(fix.id, 40)},
               {base::printable(label_or("fix-", fix.state, page.style().language), 20),
                fix.state == "in-force" ? Ink::green : Ink::yellow},
               {base::printable(fix_remark(fix, page.style().language), 300), Ink::dim}});
  }
  page.lines(table.lines(kIndent));
}

void settings(Page& page, const Explanation& explanation, bool verbose) {
  TextTable table(page.style(), {{page.say("run_setting")},
                                 {page.say("run_declared"), Align::left, true},
                                 {page.say("run_in_force"), Align::left, true}});
  std::vector<std::string> remarks;
  for (const auto& row : explanation.settings) {
    if (!row.differs && !verbose) continue;
    table.row({{base::printable(row.name, 60)},
               {with_place(row.declared, row.declared_at)},
               {with_place(row.in_force, row.in_force_at), row.differs ? Ink::yellow : Ink::plain}});
    remarks.push_back(row.remark);
  }
  if (table.empty()) return;
  page.heading("run_settings");
  const auto lines = table.lines(kIndent);
  page.lines({lines.front()});
  for (std::size_t i = 0; i < remarks.size(); ++i) {
    page.lines({lines[i + 1]});
    if (!remarks[i].empty()) page.paragraph(base::printable(remarks[i], 200), Ink::dim, 2 * kIndent);
  }
  const auto same = explanation.settings.size() - remarks.size();
  if (same > 0) page.paragraph(fill(page.say("run_settings_same"), {{"count", counted(same)}}), Ink::dim, kIndent);
}

void between(Page& page, const Explanation& explanation) {
  if (explanation.between.empty()) return;
  page.heading("run_between");
  TextTable table(page.style(), {{}, {"", Align::right}, {"", Align::right}});
  for (const auto& part : explanation.between)
    table.row({{base::printable(page.say(part.id), 60)}, {duration(part.seconds)}, {percent(part.share)}});
  page.lines(table.lines(kIndent));
}

void ranks(Page& page, const Explanation& explanation) {
  if (explanation.ranks.size() < 2) return;
  page.heading("run_ranks");
  TextTable table(page.style(), {{"rank", Align::right},
                                 {page.say("run_ms"), Align::right},
                                 {page.say("run_data_ms"), Align::right},
                                 {page.say("run_busy_ms"), Align::right},
                                 {"pid", Align::right}});
  const auto decimals = decimals_for(step_length(explanation));
  for (const auto& rank : explanation.ranks)
    table.row({{std::to_string(rank.rank)},
               {fixed(rank.step_ms, decimals)},
               {fixed(rank.data_ms, decimals)},
               {fixed(rank.busy_ms, decimals)},
               {std::to_string(rank.pid), Ink::dim}});
  page.lines(table.lines(kIndent));
}

void facts(Page& page, const Explanation& explanation) {
  page.heading("run_facts");
  TextTable table(page.style(), {{}, {"", Align::left, true}});
  for (const auto& [name, value] : run_facts(explanation, page.style().language))
    table.row({{base::printable(name, 40), Ink::dim}, {base::printable(value, 200)}});
  page.lines(table.lines(kIndent));
}

}  // namespace fullwatt::show::text_parts
