#include "fullwatt/explain/rules/rules.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "catalog/catalog.hpp"
#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/causes.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

using model::Finding;

/// What costs less is noise: one per cent where it is certain, two elsewhere.
double least_share(model::Confidence confidence) {
  return confidence == model::Confidence::certain ? 0.01 : 0.02;
}

/// Of a step; a loader that is waited for less hides nothing.
constexpr double kLeastWait = 0.02;

bool worth_telling(const Case& examined, const Match& match, const catalog::Entry& entry) {
  if (!match.gain_ms) return true;
  return examined.share(std::max(*match.gain_ms, match.gain_after_ms.value_or(0))) >= least_share(entry.confidence);
}

Finding to_finding(const catalog::Entry& entry, Match match) {
  Finding finding;
  finding.id = entry.id;
  finding.layer = entry.layer;
  finding.severity = match.severity.value_or(entry.severity);
  finding.confidence = entry.confidence;
  finding.evidence = std::move(match.evidence);
  finding.facts = std::move(match.facts);
  finding.file = match.site.file;
  finding.line = match.site.line;
  finding.charged_ms = match.charged_ms;
  finding.gain_ms = match.gain_ms;
  finding.gain_after_ms = match.gain_after_ms;
  finding.between_steps = match.between_steps;
  return finding;
}

bool speeds_loader(const Finding& finding) {
  return finding.id.starts_with("loader-") && finding.gain_ms.value_or(0) > 0;
}

/// By gain, then by severity, then by what it is charged.
bool stands_before(const Finding& left, const Finding& right) {
  if (left.best_gain_ms() != right.best_gain_ms()) return left.best_gain_ms() > right.best_gain_ms();
  if (left.severity != right.severity) return left.severity > right.severity;
  return left.charged_ms.value_or(0) > right.charged_ms.value_or(0);
}

void rank(std::vector<Finding>& findings) {
  std::ranges::stable_sort(findings, stands_before);
  std::ranges::stable_partition(
      findings, [](const Finding& finding) { return finding.best_gain_ms() == 0 || finding.consequence_of.empty(); });
  if (std::ranges::any_of(findings, &Finding::hidden_by_loader)) std::ranges::stable_partition(findings, speeds_loader);
}

/// A finding explains another one unless that one is far larger.
bool weighs_enough(const Finding& cause, const Finding& consequence) {
  return !cause.gain_ms || consequence.best_gain_ms() <= 2 * cause.best_gain_ms();
}

/// What another finding of the same run explains.
void link(std::vector<Finding>& findings) {
  for (auto& finding : findings) {
    for (const auto cause : catalog::find(finding.id)->explained_by) {
      const auto there = std::ranges::find(findings, cause, &Finding::id);
      if (there != findings.end() && weighs_enough(*there, finding) && finding.consequence_of.empty())
        finding.consequence_of = cause;
    }
  }
}

}  // namespace

Match& Match::saw(std::string what, std::string value, std::string where) {
  evidence.push_back({std::move(what), std::move(value), std::move(where)});
  return *this;
}

Match& Match::fact(const std::string& name, std::string value) {
  facts.insert_or_assign(name, std::move(value));
  return *this;
}

Match& Match::at(const model::Site& where) {
  site = where;
  fact("place", place_of(where));
  return fact("function", where.function.empty() ? "?" : where.function);
}

Match& Match::near(std::initializer_list<model::Site> places) {
  const auto known = std::ranges::find_if(places, &model::Site::known);
  return known == places.end() ? *this : at(*known);
}

Match& Match::costs(double charged, const Gain& gain, double step_ms) {
  charged_ms = std::clamp(charged, 0.0, step_ms);
  gain_ms = std::clamp(gain.alone, 0.0, step_ms);
  gain_after_ms = std::clamp(gain.after, *gain_ms, step_ms);
  fact("ms", ms_text(*charged_ms));
  return fact("share", percent(step_ms > 0 ? *charged_ms / step_ms : 0));
}

Gain Case::gain(const Change& change) const {
  const double alone = evidence.replay.gain_ms(change);
  if (share(charged(cause::kDataWait)) < kLeastWait) return alone;
  auto both = Change::without(cause::kDataWait);
  const double fed = evidence.replay.step_ms(both);
  return {alone, fed - evidence.replay.step_ms(both += change)};
}

double keeps(std::string_view id) {
  const auto* entry = catalog::find(id);
  return entry == nullptr ? 1 : entry->gain.cautious;
}

std::string ms_text(double ms) {
  return ms >= 100 ? fmt::format("{:.0f}", ms) : ms >= 10 ? fmt::format("{:.1f}", ms) : fmt::format("{:.2f}", ms);
}

std::string percent(double share) {
  return share < 0.1 ? fmt::format("{:.1f}", share * 100) : fmt::format("{:.0f}", share * 100);
}

std::string number_text(double value) {
  if (value >= 10 || value == std::round(value)) return fmt::format("{:.0f}", value);
  return value >= 1 ? fmt::format("{:.1f}", value) : fmt::format("{:.2f}", value);
}

std::string seconds_text(double seconds) {
  return fmt::format("{:.3g}", seconds);
}

std::vector<Rule> all_rules() {
  std::vector<Rule> rules;
  for (const auto part :
       {loader_rules(),    loader_course_rules(), python_rules(),    sync_rules(),        copy_rules(),
        debugging_rules(), launch_rules(),        precision_rules(), convolution_rules(), kernel_rules(),
        optimizer_rules(), compile_rules(),       memory_rules(),    leak_rules(),        host_rules(),
        course_rules(),    device_rules(),        hardware_rules(),  distributed_rules(), settings_rules()}) {
    rules.insert(rules.end(), part.begin(), part.end());
  }
  return rules;
}

std::vector<Finding> find_all(const Evidence& evidence, const SourceFacts& source,
                              const std::vector<model::SettingRow>& settings) {
  if (evidence.trainer == nullptr) return {};
  const Case examined{evidence, source, settings, measure_loader(evidence),
                      find_trained_gpu(evidence.run, evidence.facts, evidence.gpu_time)};
  std::vector<Finding> findings;
  for (const auto& rule : all_rules()) {
    const auto* entry = catalog::find(rule.id);
    if (entry == nullptr) continue;
    for (auto& match : rule.check(examined)) {
      if (worth_telling(examined, match, *entry)) findings.push_back(to_finding(*entry, std::move(match)));
    }
  }
  std::ranges::move(machine_findings(examined), std::back_inserter(findings));
  link(findings);
  rank(findings);
  return findings;
}

}  // namespace fullwatt::explain
