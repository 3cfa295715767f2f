#include "fullwatt/show/run_markdown.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "fullwatt/show/markdown.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/run_words.hpp"
#include "fullwatt/show/version.hpp"

namespace fullwatt::show {
namespace {

using model::Explanation;

constexpr std::size_t kFindings = 8;

std::string say(std::string_view key, Language language) {
  return markdown_escaped(catalog::label(key, language));
}

void causes(std::string& out, const Explanation& explanation, Language language) {
  if (explanation.causes.empty()) return;
  const auto step = step_length(explanation);
  const auto decimals = decimals_for(step);
  out += fmt::format("\n| {} | {} | {} | {} | {} |\n|---|--:|--:|--:|---|\n", say("run_cause", language),
                     say("run_ms", language), say("run_share", language), say("run_gain", language),
                     say("run_where", language));
  for (const auto& cause : explanation.causes) {
    const auto place = place_of(explanation.info, cause);
    out += fmt::format("| {} | {} | {} | {} | {} |\n", say(cause.id, language), fixed(cause.charged_ms, decimals),
                       markdown_escaped(percent(share_of(cause.charged_ms, step))),
                       cause.gain_alone_ms ? fixed(*cause.gain_alone_ms, decimals) : "", markdown_escaped(place));
  }
  out += fmt::format("| **{}** | **{}** | 100 % | | |\n", say("run_sum", language), fixed(step, decimals));
}

void findings(std::string& out, const Explanation& explanation, Language language) {
  if (explanation.findings.empty()) return;
  out += fmt::format("\n### {}\n", say("run_findings", language));
  for (std::size_t i = 0; i < std::min(kFindings, explanation.findings.size()); ++i) {
    const auto& finding = explanation.findings[i];
    out += fmt::format("- **{}** ({}", markdown_escaped(render(finding, language).title), markdown_code(finding.id));
    if (const auto place = place_of(explanation.info, finding); !place.empty()) out += ", " + markdown_code(place);
    if (const double gain = finding.best_gain_ms(); gain > 0)
      out += ", " + fill(catalog::label(saving_label(finding), language), {{"gain", milliseconds(gain)}});
    out += ")\n";
  }
}

void facts(std::string& out, const Explanation& explanation, Language language) {
  out += fmt::format("\n### {}\n", say("run_facts", language));
  for (const auto& [name, value] : run_facts(explanation, language))
    out += fmt::format("- {}: {}\n", markdown_escaped(name), markdown_code(value));
  for (const auto& remark : explanation.remarks)
    out += fmt::format("- {}\n", markdown_escaped(remark_text(remark, language)));
}

}  // namespace

std::string run_markdown(const Explanation& explanation, Language language) {
  std::string out = fmt::format("## fullwatt {}: {}\n\n**{}**\n", kVersion, say("run_report", language),
                                markdown_escaped(headline(explanation, language)));
  if (explanation.steps == 0) out += "\n" + markdown_escaped(no_steps(explanation, language).seen) + "\n";
  if (const auto change = first_change(explanation, language); !change.empty())
    out += "\n" + markdown_escaped(change) + "\n";
  if (const auto missing = no_kernels(explanation, language); !missing.empty())
    out += "\n" + markdown_escaped(missing) + "\n";
  causes(out, explanation, language);
  findings(out, explanation, language);
  facts(out, explanation, language);
  for (const auto& sentence : own_account(explanation, language)) out += "\n" + markdown_escaped(sentence) + "\n";
  return out;
}

}  // namespace fullwatt::show
