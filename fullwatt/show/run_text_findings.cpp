#include <algorithm>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/run_text_parts.hpp"
#include "fullwatt/show/run_words.hpp"

namespace fullwatt::show::text_parts {
namespace {

using model::Explanation;
using model::Finding;

constexpr std::size_t kShownInFull = 5;
constexpr std::size_t kStepsInShort = 2;

std::string price(const Page& page, const Finding& finding, double step_ms) {
  if (const double gain = finding.best_gain_ms(); gain > 0) {
    auto text = fill(page.say(saving_label(finding)), {{"gain", milliseconds(gain)}});
    if (const auto factor = speedup(step_ms, finding)) text += fmt::format(" ({})", times(*factor));
    return text;
  }
  return finding.charged_ms ? fill(page.say("run_charged"), {{"gain", milliseconds(*finding.charged_ms)}})
                            : std::string{};
}

/// "saves 6.42 ms a step (1.4×) · train.py:41 · loader-workers-zero"
std::string origin(const Page& page, const Explanation& explanation, const Finding& finding) {
  std::vector<std::string> parts;
  if (auto cost = price(page, finding, step_length(explanation)); !cost.empty()) parts.push_back(std::move(cost));
  if (auto place = place_of(explanation.info, finding); !place.empty()) parts.push_back(std::move(place));
  parts.push_back(finding.id);
  if (finding.confidence == model::Confidence::possible) parts.push_back(page.say("possible"));
  if (!finding.consequence_of.empty()) parts.push_back(page.say("because_of") + " " + finding.consequence_of);
  return base::printable(base::join(parts, " · "), 300);
}

void evidence(Page& page, const Finding& finding) {
  bool first = true;
  for (const auto& seen : finding.evidence) {
    auto text = fmt::format("{} = {}", base::printable(seen.what, 120), base::printable(seen.value, 300));
    if (!seen.where.empty()) text += "  (" + base::printable(seen.where, 200) + ")";
    page.entry(first ? page.say("seen") : "", text);
    first = false;
  }
}

void remedy(Page& page, const Rendered& words, std::size_t limit) {
  for (std::size_t i = 0; i < std::min(limit, words.remedy.size()); ++i) {
    page.entry(i == 0 ? page.say("remedy") : "", fmt::format("{}. {}", i + 1, words.remedy[i].text));
    if (!words.remedy[i].run.empty()) page.command(words.remedy[i].run);
  }
}

void in_full(Page& page, const Explanation& explanation, const Finding& finding, bool verbose) {
  const auto words = render(finding, page.style().language);
  page.marked(severity_mark(finding.severity), words.title, Ink::bold);
  const bool gains = finding.best_gain_ms() > 0;
  page.paragraph(origin(page, explanation, finding), gains ? Ink::green : Ink::dim, 4);
  if (verbose) {
    page.entry(page.say("why"), words.cause);
    evidence(page, finding);
  }
  remedy(page, words, verbose ? words.remedy.size() : kStepsInShort);
}

void in_short(Page& page, const Explanation& explanation, const Finding& finding) {
  const auto title = render(finding, page.style().language).title;
  page.marked(severity_mark(finding.severity), base::printable(title + "  " + origin(page, explanation, finding)));
}

/// Worth its own paragraph: it costs time or is wrong, and is not explained by another one.
bool is_weighty(const Finding& finding) {
  const bool gains = finding.best_gain_ms() > 0;
  return finding.consequence_of.empty() && (gains || finding.severity >= model::Severity::warning);
}

}  // namespace

void findings(Page& page, const Explanation& explanation, bool verbose) {
  std::vector<const Finding*> weighty;
  std::vector<const Finding*> others;
  for (const auto& finding : explanation.findings) {
    const bool shown = verbose || (is_weighty(finding) && weighty.size() < kShownInFull);
    (shown ? weighty : others).push_back(&finding);
  }
  if (!weighty.empty()) page.heading("run_findings");
  for (const auto* finding : weighty) in_full(page, explanation, *finding, verbose);
  if (!others.empty()) page.heading("run_more_findings");
  for (const auto* finding : others) in_short(page, explanation, *finding);
}

}  // namespace fullwatt::show::text_parts
