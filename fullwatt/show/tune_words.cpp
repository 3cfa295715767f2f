#include "fullwatt/show/tune_words.hpp"

#include <algorithm>
#include <iterator>

#include "catalog/fixes.hpp"
#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/run_words.hpp"

namespace fullwatt::show::tune_words {

std::string say(std::string_view key, const Style& style, const Facts& facts) {
  return plain_symbols(style, fill(catalog::label(key, style.language), facts));
}

std::string factor(double speedup) {
  return fmt::format("{:.2f}×", speedup);
}

std::string title_of(const std::string& fix, const Style& style) {
  const auto* known = catalog::find_fix(fix);
  return plain_symbols(style,
                       known != nullptr ? std::string(known->title.in(style.language)) : base::printable(fix, 40));
}

std::string needed(const model::Tuning& tuning, const Style& style) {
  if (tuning.needed.fixes.empty()) return {};
  std::vector<std::string> fixes;
  for (const auto& fix : tuning.needed.fixes) {
    std::string text = fix.id;
    for (const auto& [name, value] : fix.settings) text += " " + name + "=" + value;
    fixes.push_back(base::printable(text, 100));
  }
  return say("tune_needed", style, {{"value", base::join(fixes, ", ")}});
}

namespace {

std::ptrdiff_t count_open(const model::Tuning& tuning) {
  return std::ranges::count_if(tuning.tried, &model::TriedFix::is_open);
}

/// What more time could still find, behind a blank; empty when everything was tried, or when the user had enough.
std::string not_tried(const model::Tuning& tuning, const Style& style) {
  const auto open = count_open(tuning);
  if (open == 0 || tuning.interrupted) return {};
  return " " + say("tune_open", style, {{"count", std::to_string(open)}});
}

/// Why there is no plan.
std::string nothing(const model::Tuning& tuning, const Style& style) {
  if (tuning.interrupted) return say("tune_stopped", style);
  const auto open = count_open(tuning);
  const auto dropped = std::ssize(tuning.tried) - open;
  const auto of = [&](std::string_view key, std::ptrdiff_t count) {
    return say(key, style, {{"count", std::to_string(count)}});
  };
  auto out = tuning.tried.empty() ? say("tune_none_applies", style)
             : dropped == 0       ? of("tune_all_open", open)
                                  : of("tune_nothing", dropped);
  if (dropped > 0) out += not_tried(tuning, style);
  if (tuning.plan.made_for.gpu == "cpu") out += " " + say("tune_on_cpu", style);
  return out;
}

std::string_view verdict_key(const model::Tuning& tuning) {
  if (tuning.is_proved()) return "tune_proved";
  if (tuning.speed.pairs > 0 && !tuning.has_found()) return "tune_not_proved";
  return tuning.interrupted ? "tune_interrupted" : "tune_unproved";
}

}  // namespace

std::string verdict(const model::Tuning& tuning, const Style& style) {
  if (!tuning.failure.empty()) return say("tune_failed", style, {{"reason", base::printable(tuning.failure, 400)}});
  const auto room = needed(tuning, style);
  const auto key = verdict_key(tuning);
  if (!tuning.has_found() && key != "tune_not_proved") return room.empty() ? nothing(tuning, style) : room;
  return (room.empty() ? room : room + " ") +
         say(key, style,
             {{"factor", factor(tuning.speed.speedup)},
              {"count", std::to_string(tuning.plan.fixes.size() - tuning.needed.fixes.size())},
              {"ms", figure(tuning.before_ms)},
              {"step", figure(tuning.after_ms)}}) +
         not_tried(tuning, style);
}

std::string speed(const model::SpeedProof& speed, const Style& style) {
  return say(speed.is_faster() ? "tune_faster" : "tune_not_faster", style,
             {{"factor", factor(speed.speedup)},
              {"value", fmt::format("{}–{}", factor(speed.low), factor(speed.high))},
              {"count", std::to_string(speed.pairs)}});
}

std::string loss(const model::LossProof& loss, const Style& style) {
  return say("tune_loss_" + base::lower(std::string(to_string(loss.verdict))), style,
             {{"value", fmt::format("{:+.3g}", loss.difference)},
              {"limit", fmt::format("{:.3g}", loss.margin)},
              {"count", std::to_string(loss.pairs)},
              {"step", std::to_string(loss.steps)},
              {"reason", base::printable(loss.reason, 200)}});
}

std::string advice(const model::Advice& advice, const Style& style) {
  return say("tune_advice_" + advice.id, style, advice.facts);
}

Remaining remaining(const model::Finding& finding, const model::Tuning& tuning, const Style& style) {
  std::vector<std::string> notes{
      say(finding.between_steps ? "tune_mends_between" : "tune_mends", style,
          {{"value", figure(finding.gain_ms.value_or(0))}, {"limit", figure(tuning.after_ms)}})};
  if (!finding.file.empty()) notes.push_back(base::printable(place_of({}, finding.file, finding.line), 200));
  notes.push_back("fullwatt explain " + base::printable(finding.id, 80));
  return {render(finding, style.language).title, base::join(notes, plain_symbols(style, " · "))};
}

std::string predicted(const model::Prediction& prediction, const Style& style) {
  if (prediction.low_ms && prediction.high_ms)
    return say("tune_interval", style, {{"value", figure(*prediction.low_ms)}, {"limit", figure(*prediction.high_ms)}});
  return prediction.ms ? figure(*prediction.ms) : std::string();
}

double gain_ms(const model::TriedFix& tried) {
  return tried.before_ms.value_or(0) - tried.after_ms.value_or(0);
}

std::vector<model::TriedFix> kept_by_gain(const model::Tuning& tuning) {
  std::vector<model::TriedFix> kept;
  std::ranges::copy_if(tuning.tried, std::back_inserter(kept), &model::TriedFix::kept);
  std::ranges::stable_sort(kept, std::ranges::greater(), gain_ms);
  return kept;
}

std::string priority(const model::TriedFix& tried, const Style& style) {
  return say("tune_priority_" + std::string(tried.priority()), style);
}

std::vector<std::string> left_to_write(const model::Tuning& tuning) {
  std::vector<std::string> rest;
  for (const auto& fix : tuning.plan.fixes) {
    if (std::ranges::find(tuning.in_source, fix.id) == tuning.in_source.end()) rest.push_back(fix.id);
  }
  return rest;
}

std::vector<BeforeAfter> before_and_after(const model::Tuning& tuning, const Style& style) {
  std::vector<BeforeAfter> rows{{say("tune_step", style), figure(tuning.before_ms), figure(tuning.after_ms)}};
  const auto rate = [&](double ms) { return ms > 0 ? figure(1e3 * tuning.samples_per_step / ms) : std::string(); };
  if (tuning.samples_per_step > 0)
    rows.push_back({say("tune_samples", style), rate(tuning.before_ms), rate(tuning.after_ms)});
  const auto add = [&](std::string_view label, std::optional<double> model::GpuWork::* member, double scale) {
    const auto text = [&](const model::GpuWork& gpu) {
      return plain_symbols(style, gpu.*member ? figure(*(gpu.*member) / scale) : "–");
    };
    if (tuning.gpu_before.*member || tuning.gpu_after.*member)
      rows.push_back({say(label, style), text(tuning.gpu_before), text(tuning.gpu_after)});
  };
  add("tune_watts", &model::GpuWork::watts, 1);
  add("tune_utilization", &model::GpuWork::utilization_percent, 1);
  add("tune_memory", &model::GpuWork::memory_bytes, 1e9);
  return rows;
}

}  // namespace fullwatt::show::tune_words
