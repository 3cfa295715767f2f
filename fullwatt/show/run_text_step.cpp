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

using model::Cause;
using model::Explanation;

constexpr int kIndent = 2;
constexpr std::size_t kLinesInFull = 5;
constexpr int kRoomForFunctions = 90;

Ink ink_of(const Cause& cause) {
  if (!cause.explained || cause.id == "unexplained") return Ink::dim;
  if (cause.id == "data-wait") return Ink::yellow;
  if (cause.id == "python") return Ink::red;
  if (cause.id == "sync-drain") return Ink::magenta;
  if (cause.id == "launch-bound") return Ink::violet;
  if (cause.id.find("copy") != std::string::npos) return Ink::blue;
  return cause.gpu_busy ? Ink::green : Ink::plain;
}

char letter_of(std::size_t number) {
  return number < 26 ? static_cast<char>('A' + number) : number < 52 ? static_cast<char>('a' + number - 26) : '*';
}

/// Draws the causes of one step: in the bar and in the table they bear the same letters.
class StepTable {
 public:
  StepTable(Page& page, const Explanation& explanation, bool verbose)
      : page_(page),
        explanation_(explanation),
        verbose_(verbose),
        step_(step_length(explanation)),
        decimals_(decimals_for(step_)),
        table_(page.style(), columns()) {}

  void draw(const CauseGroups& groups) {
    const bool grouped = !groups.busy.empty();
    if (grouped) group("run_gpu_idle", groups.idle_ms);
    for (const auto* cause : groups.idle) row(*cause, grouped);
    if (grouped) group("run_gpu_busy", groups.busy_ms);
    for (const auto* cause : groups.busy) row(*cause, grouped);
    sum();
    page_.lines({std::string(kIndent, ' ') +
                 stacked_bar(page_.style(), parts_, std::max(20, page_.style().width - 2 * kIndent))});
    page_.blank();
    page_.lines(table_.lines(kIndent));
  }

 private:
  std::vector<TextTable::Column> columns() const {
    using Align = TextTable::Align;
    std::vector<TextTable::Column> all{{page_.say("run_cause"), Align::left, true},
                                       {page_.say("run_ms"), Align::right},
                                       {page_.say("run_share"), Align::right},
                                       {page_.say("run_gain"), Align::right}};
    if (verbose_) all.push_back({page_.say("run_gain_in_turn"), Align::right});
    all.push_back({page_.say("run_where"), Align::left, true, true});
    return all;
  }

  std::string gain(const std::optional<double>& ms) const {
    return ms && *ms > 0 ? fixed(*ms, decimals_) : std::string{};
  }

  void group(std::string_view key, double ms) { cells(page_.say(key), Ink::bold, ms, {}, {}, {}); }

  void sum() { cells(page_.say("run_sum"), Ink::bold, step_, {}, {}, {}); }

  void cells(std::string name, Ink ink, double ms, std::string alone, std::string after, std::string place) {
    std::vector<TextTable::Cell> all{{std::move(name), ink},
                                     {fixed(ms, decimals_), ink == Ink::bold ? ink : Ink::plain},
                                     {percent(share_of(ms, step_)), ink == Ink::bold ? ink : Ink::plain},
                                     {std::move(alone), Ink::green}};
    if (verbose_) all.push_back({std::move(after), Ink::green});
    all.push_back({std::move(place)});
    table_.row(std::move(all));
  }

  void row(const Cause& cause, bool grouped) {
    const auto letter = letter_of(parts_.size());
    const auto ink = ink_of(cause);
    parts_.push_back({cause.charged_ms, letter, ink, cause.gpu_busy || !grouped});
    cells(fmt::format("{}{} {}", grouped ? "  " : "", letter, base::printable(page_.say(cause.id), 40)), ink,
          cause.charged_ms, gain(cause.gain_alone_ms), gain(cause.gain_after_ms), where(cause, 0));
    const auto shown = verbose_ ? std::min(cause.lines.size(), kLinesInFull) : std::size_t{0};
    for (std::size_t i = 1; i < shown; ++i) cells("", Ink::plain, cause.lines[i].ms, {}, {}, where(cause, i));
  }

  std::string where(const Cause& cause, std::size_t number) const {
    if (cause.lines.size() <= number) return {};
    const auto& site = cause.lines[number].site;
    auto text = place_of(explanation_.info, site);
    const bool has_room = page_.style().width >= kRoomForFunctions;
    if (has_room && !site.function.empty() && site.function != "<module>") text += " " + site.function;
    return base::printable(text, 120);
  }

  Page& page_;
  const Explanation& explanation_;
  bool verbose_;
  double step_;
  int decimals_;
  TextTable table_;
  std::vector<BarPart> parts_;
};

void title(Page& page, const Explanation& explanation) {
  page.blank();
  const auto text = fmt::format("{}, {}", page.say("run_step"), milliseconds(step_length(explanation)));
  auto more = step_spread(explanation, page.style().language);
  if (explanation.samples_per_second)
    more += "; " + fill(page.say("run_samples"), {{"value", figure(*explanation.samples_per_second)}});
  if (display_width(text) + display_width(more) + 2 > page.style().width) {
    page.paragraph(text, Ink::bold);
    page.paragraph(more, Ink::dim, kIndent);
  } else {
    page.line(paint(page.style(), Ink::bold, text) + "  " + paint(page.style(), Ink::dim, more));
  }
}

}  // namespace

void step(Page& page, const Explanation& explanation, bool verbose) {
  const auto groups = cause_groups(explanation);
  if (explanation.steps == 0 || (groups.idle.empty() && groups.busy.empty())) return;
  title(page, explanation);
  StepTable(page, explanation, verbose).draw(groups);
  for (const auto& sentence : outlook(explanation, page.style().language))
    page.paragraph(sentence, Ink::plain, kIndent);
}

}  // namespace fullwatt::show::text_parts
