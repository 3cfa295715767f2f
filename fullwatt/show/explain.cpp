#include "fullwatt/show/explain.hpp"

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/words.hpp"

namespace fullwatt::show {
namespace {

std::string needs_text(unsigned needs, catalog::Language language) {
  std::vector<std::string> parts;
  const std::pair<unsigned, const char*> all[] = {{catalog::kMachine, "machine"},
                                                  {catalog::kProcess, "process"},
                                                  {catalog::kLog, "log"},
                                                  {catalog::kLoad | catalog::kRun, "load"}};
  for (const auto& [flag, key] : all) {
    if ((needs & flag) != 0) parts.emplace_back(catalog::label(key, language));
  }
  return base::join(parts, ", ");
}

std::string joined(std::span<const std::string_view> items) {
  std::vector<std::string> parts(items.begin(), items.end());
  return base::join(parts, ", ");
}

void paragraph(std::string& out, std::string_view text, const Style& style, std::string_view indent = "") {
  for (const auto& line : wrap(text, style.width - static_cast<int>(indent.size()))) {
    out += std::string(indent) + plain_symbols(style, line) + "\n";
  }
}

}  // namespace

std::string explain_text(const catalog::Entry& entry, const Style& style) {
  const auto say = [&](std::string_view key) { return std::string(catalog::label(key, style.language)); };
  const Facts none;
  std::string out = paint(style, Ink::bold, fill(entry.title.in(style.language), none)) + "\n" +
                    paint(style, Ink::dim, entry.id) + "\n\n";
  out +=
      fmt::format("{}: {}\n{}: {}\n{}: {}\n{}: {}\n\n", say("explain_layer"), say(to_string(entry.layer)),
                  say("explain_severity"), say(to_string(entry.severity)), say("explain_confidence"),
                  say(to_string(entry.confidence)), say("explain_shown_by"), needs_text(entry.needs, style.language));
  paragraph(out, fill(entry.cause.in(style.language), none), style);
  out += "\n" + paint(style, Ink::bold, say("remedy")) + "\n";
  int number = 0;
  for (const auto& step : entry.remedy) {
    paragraph(out, fmt::format("{}. {}", ++number, fill(step.text.in(style.language), none)), style, "  ");
    if (!step.run.empty()) out += "     $ " + fill(step.run, none) + "\n";
  }
  if (!entry.see.empty()) out += fmt::format("\n{}: {}\n", say("see_also"), joined(entry.see));
  if (!entry.sources.empty()) {
    out += "\n";
    paragraph(out, fmt::format("{}: {}", say("sources"), joined(entry.sources)), style);
  }
  return out;
}

std::string list_checks(const Style& style) {
  std::string out;
  for (const auto& entry : catalog::entries()) {
    out += fmt::format("{:<34} {:<12} {:<8} {}\n", entry.id, to_string(entry.layer), to_string(entry.severity),
                       plain_symbols(style, fill(entry.title.in(style.language), {})));
  }
  return out;
}

}  // namespace fullwatt::show
