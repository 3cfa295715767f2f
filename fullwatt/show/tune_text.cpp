#include "fullwatt/show/tune_text.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "catalog/fixes.hpp"
#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/text_table.hpp"
#include "fullwatt/show/words.hpp"

namespace fullwatt::show {
namespace {

constexpr double kToldOnce = 1;  ///< seconds

std::string factor(double speedup) {
  return fmt::format("{:.2f}×", speedup);
}

std::string title_of(const std::string& id, Language language) {
  const auto* fix = catalog::find_fix(id);
  return fix != nullptr ? std::string(fix->title.in(language)) : base::printable(id, 40);
}

std::string say(std::string_view key, const Style& style, const Facts& facts = {}) {
  return plain_symbols(style, fill(catalog::label(key, style.language), facts));
}

std::string speed_line(const model::SpeedProof& speed, const Style& style) {
  return say(speed.is_faster() ? "tune_faster" : "tune_not_faster", style,
             {{"factor", factor(speed.speedup)},
              {"value", fmt::format("{}–{}", factor(speed.low), factor(speed.high))},
              {"count", std::to_string(speed.pairs)}});
}

std::string loss_line(const model::LossProof& loss, const Style& style) {
  return say("tune_loss_" + base::lower(std::string(to_string(loss.verdict))), style,
             {{"value", fmt::format("{:+.3g}", loss.difference)},
              {"limit", fmt::format("{:.3g}", loss.margin)},
              {"count", std::to_string(loss.pairs)},
              {"step", std::to_string(loss.steps)},
              {"reason", base::printable(loss.reason, 200)}});
}

/// A table below its title.
std::string section(std::string_view title, const TextTable& table, const Style& style) {
  std::string out = fmt::format("\n{}\n", paint(style, Ink::bold, say(title, style)));
  for (const auto& line : table.lines(2)) out += line + "\n";
  return out;
}

std::string before_and_after(const model::Tuning& tuning, const Style& style) {
  using Align = TextTable::Align;
  TextTable table(style, {{""}, {say("tune_before", style), Align::right}, {say("tune_after", style), Align::right}});
  table.row({{say("tune_step", style)}, {figure(tuning.before_ms)}, {figure(tuning.after_ms)}});
  const auto rate = [&](double ms) { return ms > 0 ? figure(1e3 * tuning.samples_per_step / ms) : std::string(); };
  if (tuning.samples_per_step > 0)
    table.row({{say("tune_samples", style)}, {rate(tuning.before_ms)}, {rate(tuning.after_ms)}});
  const auto work = [&](std::string_view label, std::optional<double> model::GpuWork::* member, double scale) {
    const auto text = [&](const model::GpuWork& gpu) { return gpu.*member ? figure(*(gpu.*member) / scale) : "–"; };
    if (tuning.gpu_before.*member || tuning.gpu_after.*member)
      table.row({{say(label, style)},
                 {plain_symbols(style, text(tuning.gpu_before))},
                 {plain_symbols(style, text(tuning.gpu_after))}});
  };
  work("tune_watts", &model::GpuWork::watts, 1);
  work("tune_utilization", &model::GpuWork::utilization_percent, 1);
  work("tune_memory", &model::GpuWork::memory_bytes, 1e9);
  return section("tune_before_after", table, style);
}

double gain_ms(const model::TriedFix& tried) {
  return tried.before_ms.value_or(0) - tried.after_ms.value_or(0);
}

std::string kept_table(const model::Tuning& tuning, const Style& style) {
  using Align = TextTable::Align;
  std::vector<model::TriedFix> kept;
  std::ranges::copy_if(tuning.tried, std::back_inserter(kept), &model::TriedFix::kept);
  std::ranges::stable_sort(kept, std::ranges::greater(), gain_ms);
  TextTable table(style, {{say("run_fix", style)},
                          {"", Align::right},
                          {say("tune_gain", style), Align::right},
                          {say("tune_expected", style), Align::right},
                          {say("tune_more_watts", style), Align::right},
                          {say("tune_paid", style), Align::right},
                          {"", Align::left, true}});
  for (const auto& tried : kept) {
    const auto paid = tried.steps_to_pay();
    table.row(
        {{tried.fix.id},
         {plain_symbols(style, factor(tried.speedup().value_or(1)))},
         {figure(gain_ms(tried))},
         {tried.predicted_ms ? figure(*tried.predicted_ms) : ""},
         {tried.before_watts && tried.after_watts ? fmt::format("{:+.0f}", *tried.after_watts - *tried.before_watts)
                                                  : ""},
         {paid ? say("tune_paid_steps", style, {{"value", figure(std::ceil(*paid))}}) : ""},
         {plain_symbols(style, title_of(tried.fix.id, style.language)), Ink::dim}});
  }
  return section("tune_kept", table, style);
}

std::string dropped_table(const model::Tuning& tuning, const Style& style) {
  TextTable table(style, {{""}, {"", TextTable::Align::right}, {"", TextTable::Align::left, true}});
  for (const auto& tried : tuning.tried) {
    if (!tried.kept)
      table.row({{tried.fix.id},
                 {plain_symbols(style, tried.speedup() ? factor(*tried.speedup()) : "")},
                 {base::printable(tried.reason, 200), Ink::dim}});
  }
  return table.empty() ? std::string() : section("tune_dropped", table, style);
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
  std::vector<std::string> rest;
  for (const auto& fix : tuning.plan.fixes) {
    if (std::ranges::find(tuning.in_source, fix.id) == tuning.in_source.end()) rest.push_back(fix.id);
  }
  if (!rest.empty()) out += "  " + say("tune_by_hand", style, {{"value", base::join(rest, ", ")}}) + "\n";
  return out;
}

std::string what_is_left(const model::Tuning& tuning, const Style& style) {
  if (tuning.advice.empty()) return {};
  std::string out = fmt::format("\n{}\n", paint(style, Ink::bold, say("tune_idle", style)));
  for (const auto& advice : tuning.advice) {
    out += "  " + say("tune_advice_" + advice.id, style, advice.facts) + "\n";
  }
  return out;
}

}  // namespace

std::string candidate_line(const model::TriedFix& fix, const Style& style) {
  const auto gain = fix.predicted_ms ? say("tune_predicted", style, {{"ms", figure(*fix.predicted_ms)}})
                                     : say("tune_not_predicted", style);
  return fmt::format("  {:<18} {}{}\n", fix.fix.id, base::printable(fix.why, 100), paint(style, Ink::dim, "; " + gain));
}

std::string tried_line(const model::TriedFix& tried, const Style& style) {
  const auto mark = paint(style, tried.kept ? Ink::green : Ink::dim, plain_symbols(style, tried.kept ? "✓" : "–"));
  const auto speedup = plain_symbols(style, tried.speedup() ? factor(*tried.speedup()) : "");
  const auto padding = std::string(static_cast<std::size_t>(std::max(0, 8 - display_width(speedup))), ' ');
  std::vector<std::string> notes;
  if (!tried.kept) notes.push_back(base::printable(tried.reason, 100));
  if (tried.kept && tried.predicted_ms)
    notes.push_back(say("tune_measured", style,
                        {{"value", figure(*tried.before_ms - *tried.after_ms)}, {"ms", figure(*tried.predicted_ms)}}));
  if (tried.once_s >= kToldOnce) notes.push_back(say("tune_once", style, {{"value", figure(tried.once_s)}}));
  const auto note = notes.empty() ? std::string() : " (" + base::join(notes, "; ") + ")";
  return fmt::format("{} {:<18} {}{}{}{}\n", mark, tried.fix.id, speedup, padding,
                     plain_symbols(style, title_of(tried.fix.id, style.language)), paint(style, Ink::dim, note));
}

std::vector<std::string> evidence(const model::Tuning& tuning) {
  const Style plain{.unicode = false};
  std::vector<std::string> lines;
  if (!tuning.is_proved()) lines.emplace_back("NOT PROVED: the proof was interrupted");
  if (tuning.speed.pairs > 0) {
    lines.push_back(speed_line(tuning.speed, plain));
    lines.push_back(loss_line(tuning.loss, plain));
  }
  for (const auto& tried : tuning.tried) {
    auto line = tried_line(tried, plain);
    line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

std::string tune_text(const model::Tuning& tuning, const Style& style) {
  if (!tuning.failure.empty())
    return say("tune_failed", style, {{"reason", base::printable(tuning.failure, 400)}}) + "\n";
  if (tuning.plan.fixes.empty()) return say("tune_nothing", style) + "\n" + what_is_left(tuning, style);
  std::string out = before_and_after(tuning, style) + kept_table(tuning, style) + dropped_table(tuning, style);
  if (tuning.speed.pairs > 0) {
    out += fmt::format("\n{}\n", paint(style, Ink::bold, say("tune_proof", style)));
    out += "  " + speed_line(tuning.speed, style) + "\n  " + loss_line(tuning.loss, style) + "\n";
  }
  out += in_source(tuning, style);
  out += what_is_left(tuning, style);
  const auto* verdict = tuning.is_proved()   ? "tune_proved"
                        : tuning.interrupted ? "tune_interrupted"
                                             : "tune_not_proved";
  out += "\n" +
         say(verdict, style,
             {{"factor", factor(tuning.speed.speedup)},
              {"count", std::to_string(tuning.plan.fixes.size())},
              {"ms", figure(tuning.before_ms)},
              {"step", figure(tuning.after_ms)}}) +
         "\n";
  return out;
}

}  // namespace fullwatt::show
