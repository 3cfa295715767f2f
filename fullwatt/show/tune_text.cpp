#include "fullwatt/show/tune_text.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/text_table.hpp"
#include "fullwatt/show/tune_words.hpp"

namespace fullwatt::show {
namespace {

using namespace tune_words;

constexpr double kToldOnce = 1;  ///< seconds

/// A table below its title.
std::string section(std::string_view title, const TextTable& table, const Style& style) {
  std::string out = fmt::format("\n{}\n", paint(style, Ink::bold, say(title, style)));
  for (const auto& line : table.lines(2)) out += line + "\n";
  return out;
}

std::string comparison(const model::Tuning& tuning, const Style& style) {
  using Align = TextTable::Align;
  TextTable table(style, {{""}, {say("tune_before", style), Align::right}, {say("tune_after", style), Align::right}});
  for (const auto& row : before_and_after(tuning, style)) table.row({{row.name}, {row.before}, {row.after}});
  return section("tune_before_after", table, style);
}

std::string kept_table(const model::Tuning& tuning, const Style& style) {
  using Align = TextTable::Align;
  TextTable table(style, {{say("run_fix", style)},
                          {"", Align::right},
                          {say("tune_gain", style), Align::right},
                          {say("tune_expected", style), Align::right},
                          {say("tune_priority", style)},
                          {say("tune_more_watts", style), Align::right},
                          {say("tune_paid", style), Align::right},
                          {"", Align::left, true}});
  for (const auto& tried : kept_by_gain(tuning)) {
    const auto paid = tried.steps_to_pay();
    table.row(
        {{tried.fix.id},
         {plain_symbols(style, factor(tried.speedup().value_or(1)))},
         {figure(gain_ms(tried))},
         {predicted(tried.predicted, style)},
         {priority(tried, style)},
         {tried.before_watts && tried.after_watts ? fmt::format("{:+.0f}", *tried.after_watts - *tried.before_watts)
                                                  : ""},
         {paid ? say("tune_paid_steps", style, {{"value", figure(std::ceil(*paid))}}) : ""},
         {title_of(tried.fix.id, style), Ink::dim}});
  }
  if (table.empty()) return {};
  auto out = section("tune_kept", table, style);
  for (const auto& tried : kept_by_gain(tuning)) {
    if (!tried.caveat.empty()) out += fmt::format("  {}: {}\n", tried.fix.id, base::printable(tried.caveat, 200));
  }
  return out;
}

std::string dropped_table(const model::Tuning& tuning, const Style& style) {
  TextTable table(style, {{""}, {"", TextTable::Align::right}, {"", TextTable::Align::left, true}});
  for (const auto& tried : tuning.tried) {
    if (!tried.kept)
      table.row({{tried.fix.id},
                 {plain_symbols(style, tried.speedup() ? factor(*tried.speedup()) : "")},
                 {base::printable(tried.reason, 200), Ink::dim}});
  }
  return table.empty() ? std::string() : section("tune_not_kept", table, style);
}

/// The plan in the user's own files, and what is left for them to write.
std::string in_source(const model::Tuning& tuning, const Style& style) {
  if (tuning.source.empty() || !tuning.is_proved()) return {};
  std::string out = fmt::format("\n{}\n", paint(style, Ink::bold, say("tune_source", style)));
  for (const auto& file : tuning.source) {
    for (const auto& line : base::split(file.diff, '\n')) {
      if (line.empty()) continue;
      const auto ink = line[0] == '+' ? Ink::green : line[0] == '-' ? Ink::red : Ink::dim;
      out += "  " + paint(style, ink, base::printable(line, 300)) + "\n";
    }
  }
  if (const auto rest = left_to_write(tuning); !rest.empty())
    out += "  " + say("tune_by_hand", style, {{"value", base::join(rest, ", ")}}) + "\n";
  return out;
}

std::string remaining_findings(const model::Tuning& tuning, const Style& style) {
  if (tuning.remaining.empty()) return {};
  std::string out = fmt::format("\n{}\n", paint(style, Ink::bold, say("tune_remaining", style)));
  for (const auto& finding : tuning.remaining) {
    const auto words = remaining(finding, tuning, style);
    out += fmt::format("  {}\n    {}\n", words.title, paint(style, Ink::dim, words.note));
  }
  return out;
}

std::string what_is_left(const model::Tuning& tuning, const Style& style) {
  if (tuning.advice.empty()) return {};
  std::string out = fmt::format("\n{}\n", paint(style, Ink::bold, say("tune_idle", style)));
  for (const auto& one : tuning.advice) out += "  " + advice(one, style) + "\n";
  return out;
}

}  // namespace

std::string candidate_line(const model::TriedFix& fix, const Style& style) {
  const auto told = predicted(fix.predicted, style);
  const auto gain = told.empty() ? say("tune_not_predicted", style) : say("tune_predicted", style, {{"ms", told}});
  return fmt::format("  {:<18} {}{}\n", fix.fix.id, base::printable(fix.why, 100), paint(style, Ink::dim, "; " + gain));
}

std::string tried_line(const model::TriedFix& tried, const Style& style) {
  const auto mark = paint(style, tried.kept ? Ink::green : Ink::dim, plain_symbols(style, tried.kept ? "✓" : "–"));
  const auto speedup = plain_symbols(style, tried.speedup() ? factor(*tried.speedup()) : "");
  const auto padding = std::string(static_cast<std::size_t>(std::max(0, 8 - display_width(speedup))), ' ');
  std::vector<std::string> notes;
  if (!tried.kept) notes.push_back(base::printable(tried.reason, 100));
  if (const auto told = predicted(tried.predicted, style); tried.kept && !told.empty())
    notes.push_back(say("tune_measured", style, {{"value", figure(gain_ms(tried))}, {"ms", told}}));
  if (tried.kept && !tried.caveat.empty()) notes.push_back(base::printable(tried.caveat, 200));
  if (tried.once_s >= kToldOnce) notes.push_back(say("tune_once", style, {{"value", figure(tried.once_s)}}));
  const auto note = notes.empty() ? std::string() : " (" + base::join(notes, "; ") + ")";
  return fmt::format("{} {:<18} {}{}{}{}\n", mark, tried.fix.id, speedup, padding, title_of(tried.fix.id, style),
                     paint(style, Ink::dim, note));
}

std::vector<std::string> evidence(const model::Tuning& tuning) {
  const Style plain{.unicode = false};
  std::vector<std::string> lines;
  if (!tuning.needed.fixes.empty()) lines.push_back(needed(tuning, plain));
  if (tuning.has_found() && !tuning.is_proved())
    lines.emplace_back(tuning.interrupted ? "NOT PROVED: the proof was interrupted"
                                          : "NOT PROVED: no proof was asked for");
  if (tuning.speed.pairs > 0) {
    lines.push_back(speed(tuning.speed, plain));
    lines.push_back(loss(tuning.loss, plain));
  }
  for (const auto& tried : tuning.tried) {
    auto line = tried_line(tried, plain);
    line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

std::string tune_text(const model::Tuning& tuning, const Style& style) {
  if (!tuning.failure.empty()) return verdict(tuning, style) + "\n";
  const bool has_plan = tuning.has_found() || tuning.speed.pairs > 0;
  std::string out = has_plan ? comparison(tuning, style) + kept_table(tuning, style) : std::string();
  out += dropped_table(tuning, style);
  if (tuning.speed.pairs > 0) {
    out += fmt::format("\n{}\n", paint(style, Ink::bold, say("tune_proof", style)));
    out += "  " + speed(tuning.speed, style) + "\n  " + loss(tuning.loss, style) + "\n";
  }
  out += in_source(tuning, style) + remaining_findings(tuning, style) + what_is_left(tuning, style);
  return out + "\n" + verdict(tuning, style) + "\n";
}

}  // namespace fullwatt::show
