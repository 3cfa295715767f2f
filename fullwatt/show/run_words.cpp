#include "fullwatt/show/run_words.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "fullwatt/base/pattern.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/show/numbers.hpp"

namespace fullwatt::show {
namespace {

using model::Explanation;
using model::RunInfo;

constexpr double kBusyEnough = 0.9;

std::string phrase(std::string_view key, Language language, const Facts& facts) {
  return fill(catalog::label(key, language), facts);
}

std::string at_place(const std::string& place, Language language) {
  return place.empty() ? std::string{} : phrase("run_at", language, {{"place", place}});
}

/// The sentence's second half: why the GPU has nothing to do.
std::string idle_clause(const model::Cause& cause, Language language) {
  const auto key = "idle-" + cause.id;
  const auto clause = catalog::label(key, language);
  return std::string(clause == key ? catalog::label(cause.id, language) : clause);
}

std::string gpu_headline(const Explanation& explanation, const CauseGroups& groups, Language language) {
  const auto step = step_length(explanation);
  const auto busy = share_of(groups.busy_ms, step);
  if (groups.idle.empty() || (busy >= kBusyEnough && !groups.busy.empty())) {
    return phrase("run_busy", language,
                  {{"busy", percent(busy)},
                   {"step", milliseconds(step)},
                   {"cause", std::string(catalog::label(groups.busy.front()->id, language))}});
  }
  const auto& first = *groups.idle.front();
  return phrase("run_idle", language,
                {{"idle", percent(1 - busy)}, {"step", milliseconds(step)}, {"cause", idle_clause(first, language)}}) +
         at_place(place_of(explanation.info, first), language);
}

std::string host_headline(const Explanation& explanation, const CauseGroups& groups, Language language) {
  const auto step = step_length(explanation);
  if (groups.idle.empty()) return phrase("run_no_parts", language, {{"step", milliseconds(step)}});
  const auto& first = *groups.idle.front();
  return phrase("run_host", language,
                {{"step", milliseconds(step)},
                 {"share", percent(share_of(first.charged_ms, step))},
                 {"cause", std::string(catalog::label(first.id, language))}}) +
         at_place(place_of(explanation.info, first), language);
}

std::string full_stop(Language language) {
  return language == Language::zh ? "。" : ".";
}

std::string seen_instead(const RunInfo& info, Language language) {
  const Facts facts{{"seconds", duration(info.seconds)},
                    {"code", std::to_string(info.signal ? *info.signal : info.exit_code.value_or(0))}};
  if (info.interrupted || (!info.signal && !info.exit_code)) return phrase("run_no_steps_stopped", language, facts);
  return phrase(info.signal ? "run_no_steps_killed" : "run_no_steps_ended", language, facts);
}

using FactRows = std::vector<std::pair<std::string, std::string>>;

void add(FactRows& rows, std::string_view key, std::string value, Language language) {
  if (!value.empty()) rows.emplace_back(label_or("fact-", key, language), std::move(value));
}

std::string energy_text(const Explanation& explanation) {
  if (!explanation.energy_kwh) return {};
  auto text = figure(*explanation.energy_kwh) + " kWh";
  if (explanation.energy_cost)
    text += fmt::format(", {} {}", fixed(*explanation.energy_cost, 2), explanation.info.currency);
  return text;
}

std::string git_text(const RunInfo& info, Language language) {
  if (info.git_commit.empty()) return {};
  auto text = info.git_commit.substr(0, 12);
  if (info.git_dirty) text += ", " + std::string(catalog::label("fact-git-dirty", language));
  return text;
}

}  // namespace

double step_length(const Explanation& explanation) {
  double sum = 0;
  for (const auto& cause : explanation.causes) sum += cause.charged_ms;
  return std::isfinite(sum) && sum > 0 ? sum : explanation.step_ms.median;
}

std::optional<double> reachable_ms(const Explanation& explanation) {
  double gain = 0;
  for (const auto& cause : explanation.causes) gain += cause.gain_after_ms.value_or(0);
  const auto left = step_length(explanation) - gain;
  if (!std::isfinite(gain) || gain <= 0 || left <= 0) return std::nullopt;
  return left;
}

std::optional<double> speedup(double step_ms, const model::Finding& finding) {
  const double gain = finding.best_gain_ms();
  const double all = step_ms + (finding.between_steps ? finding.charged_ms.value_or(0) : 0);
  return gain > 0 && gain < all ? std::optional(all / (all - gain)) : std::nullopt;
}

std::string_view saving_label(const model::Finding& finding) {
  if (finding.between_steps) return "run_saves_between";
  return finding.hidden_by_loader() ? "run_saves_after" : "run_saves";
}

std::string place_of(const RunInfo& info, std::string_view file, int line) {
  if (file.empty()) return {};
  const auto folder = info.folder + "/";
  if (info.folder.size() > 1 && file.starts_with(folder)) file.remove_prefix(folder.size());
  return line > 0 ? fmt::format("{}:{}", file, line) : std::string(file);
}

std::string place_of(const RunInfo& info, const model::Site& site) {
  return place_of(info, site.file, site.line);
}

std::string place_of(const RunInfo& info, const model::Finding& finding) {
  return place_of(info, finding.file, finding.line);
}

std::string place_of(const RunInfo& info, const model::Cause& cause) {
  return cause.lines.empty() ? std::string{} : place_of(info, cause.lines.front().site);
}

std::string ending(const RunInfo& info, Language language) {
  if (info.interrupted) return std::string(catalog::label("fact-interrupted", language));
  if (info.signal) return phrase("fact-signal", language, {{"code", std::to_string(*info.signal)}});
  return info.exit_code ? phrase("fact-exit-code", language, {{"code", std::to_string(*info.exit_code)}})
                        : std::string{};
}

std::string label_or(std::string_view prefix, std::string_view name, Language language) {
  const auto key = std::string(prefix) + std::string(name);
  const auto words = catalog::label(key, language);
  return std::string(words == key ? name : words);
}

std::string headline(const Explanation& explanation, Language language) {
  const auto stop = full_stop(language);
  if (explanation.steps == 0)
    return phrase("run_no_steps", language, {{"seconds", duration(explanation.info.seconds)}}) + stop;
  const auto groups = cause_groups(explanation);
  const bool has_lane = explanation.gpu_busy_ms.has_value() && !(groups.idle.empty() && groups.busy.empty());
  return (has_lane ? gpu_headline(explanation, groups, language) : host_headline(explanation, groups, language)) + stop;
}

std::string first_change(const Explanation& explanation, Language language) {
  if (explanation.steps == 0) return {};
  const auto* first = explanation.find(explanation.verdict);
  if (first == nullptr) return std::string(catalog::label("run_nothing_to_gain", language));
  const auto title = render(*first, language).title;
  const auto place = place_of(explanation.info, *first);
  auto text = phrase("run_first", language, {{"title", title}});
  if (title.find(place) == std::string::npos) text += phrase("run_in", language, {{"place", place}});
  const auto factor = speedup(step_length(explanation), *first);
  if (factor && !first->hidden_by_loader()) {
    text += (language == Language::zh ? "，" : "; ") +
            phrase("run_would_give", language, {{"gain", milliseconds(*first->gain_ms)}, {"factor", times(*factor)}});
  }
  return text + full_stop(language);
}

NoSteps no_steps(const Explanation& explanation, Language language) {
  const auto advice = [&](std::string_view key, std::string run = {}) {
    return RenderedStep{std::string(catalog::label(key, language)), std::move(run)};
  };
  return {seen_instead(explanation.info, language),
          {advice("run_no_steps_optimizer"), advice("run_no_steps_python"),
           advice("run_no_steps_machine", "fullwatt doctor")}};
}

std::string step_spread(const Explanation& explanation, Language language) {
  const auto& spread = explanation.step_ms;
  return phrase("run_step_spread", language,
                {{"count", counted(spread.count)},
                 {"step", milliseconds(spread.median)},
                 {"value", fmt::format("{}–{}", figure(spread.p05), milliseconds(spread.p95))}});
}

std::string remark_text(const std::string& remark, Language language) {
  constexpr std::array<std::string_view, 10> kKnown{
      "remark-on-cpu",       "remark-no-window",  "remark-no-kernel", "remark-no-gpu",    "remark-too-short",
      "remark-windows-full", "remark-spool-full", "remark-spool-cut", "remark-no-causes", "remark-from-causes"};
  for (const auto key : kKnown) {
    const auto captures = base::match(catalog::label(key, Language::en), remark);
    if (captures && phrase(key, Language::en, *captures) == remark) return phrase(key, language, *captures);
  }
  return remark;
}

std::string no_kernels(const Explanation& explanation, Language language) {
  if (explanation.no_gpu_records.empty() || explanation.steps == 0) return {};
  return phrase("run_no_kernels", language, {{"reason", remark_text(explanation.no_gpu_records, language)}});
}

std::vector<std::string> outlook(const Explanation& explanation, Language language) {
  std::vector<std::string> sentences;
  const auto step = step_length(explanation);
  if (const auto left = reachable_ms(explanation))
    sentences.push_back(
        phrase("run_with_all", language, {{"step", milliseconds(*left)}, {"factor", times(step / *left)}}));
  if (explanation.ceiling_ms)
    sentences.push_back(phrase("run_ceiling", language, {{"step", milliseconds(*explanation.ceiling_ms)}}));
  return sentences;
}

std::vector<std::string> own_account(const Explanation& explanation, Language language) {
  std::vector<std::string> sentences;
  if (explanation.explained_idle_share && explanation.steps > 0)
    sentences.push_back(phrase(
        "run_unexplained", language,
        {{"share", percent(*explanation.explained_idle_share)}, {"value", milliseconds(explanation.unexplained_ms)}}));
  if (explanation.steps > 0)
    sentences.push_back(phrase("run_overhead", language,
                               {{"value", figure(explanation.overhead_steady_us) + " µs"},
                                {"share", fixed(explanation.overhead_share * 100, 2) + " %"}}));
  return sentences;
}

bool is_rated(std::string_view resource) {
  return resource == "power" || resource == "compute" || resource == "gpu-busy" || resource == "memory-bandwidth";
}

FactRows run_facts(const Explanation& explanation, Language language) {
  FactRows rows;
  const auto& info = explanation.info;
  add(rows, "command", base::shell_line(info.command), language);
  add(rows, "started", info.started, language);
  add(rows, "length", duration(info.seconds), language);
  add(rows, "exit", ending(info, language), language);
  add(rows, "steps", counted(explanation.steps), language);
  add(rows, "gpu-asked", info.gpu_asked, language);
  for (const auto& [name, value] : explanation.facts) add(rows, name, value, language);
  add(rows, "git", git_text(info, language), language);
  if (explanation.epoch_left_s && *explanation.epoch_left_s > 0)
    add(rows, "epoch-left", duration(*explanation.epoch_left_s), language);
  add(rows, "energy", energy_text(explanation), language);
  add(rows, "hang", info.hang, language);
  return rows;
}

CauseGroups cause_groups(const Explanation& explanation) {
  CauseGroups groups;
  for (const auto& cause : explanation.causes) {
    (cause.gpu_busy ? groups.busy : groups.idle).push_back(&cause);
    (cause.gpu_busy ? groups.busy_ms : groups.idle_ms) += cause.charged_ms;
  }
  const auto larger = [](const model::Cause* a, const model::Cause* b) { return a->charged_ms > b->charged_ms; };
  std::ranges::stable_sort(groups.idle, larger);
  std::ranges::stable_sort(groups.busy, larger);
  return groups;
}

std::string fix_remark(const model::FixState& fix, Language language) {
  if (fix.overrode.empty()) return fix.text;
  const auto instead = fill(catalog::label("run_fix_overrode", language), {{"value", base::join(fix.overrode, ", ")}});
  return fix.text.empty() ? instead : fix.text + "; " + instead;
}

}  // namespace fullwatt::show
