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

/// "count, mode?": what may be left out is marked.
std::string settings_text(const catalog::Fix& fix) {
  std::vector<std::string> parts;
  for (const auto& setting : fix.settings) parts.push_back(std::string(setting.name) + (setting.required ? "" : "?"));
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

std::string explain_text(const catalog::Fix& fix, const Style& style) {
  const auto say = [&](std::string_view key) { return std::string(catalog::label(key, style.language)); };
  std::string out =
      paint(style, Ink::bold, fix.title.in(style.language)) + "\n" + paint(style, Ink::dim, fix.id) + "\n\n";
  out += fmt::format("{}: {}\n", say("explain_class"), say("fix-" + std::string(to_string(fix.kind))));
  if (!fix.settings.empty()) out += fmt::format("{}: {}\n", say("explain_settings"), settings_text(fix));
  if (!fix.mends.empty()) out += fmt::format("{}: {}\n", say("explain_mends"), joined(fix.mends));
  if (!fix.unlike.empty()) out += fmt::format("{}: {}\n", say("explain_unlike"), joined(fix.unlike));
  out += "\n";
  paragraph(out, fix.what.in(style.language), style);
  out += "\n" + paint(style, Ink::bold, say("explain_risk")) + "\n";
  paragraph(out, fix.risk.in(style.language), style, "  ");
  out += "\n" + paint(style, Ink::bold, say("explain_patch")) + "\n";
  for (const auto line : base::lines(fix.patch)) out += fmt::format("  {}\n", plain_symbols(style, std::string(line)));
  return out;
}

std::string list_fixes(const Style& style) {
  std::string out;
  for (const auto& fix : catalog::fixes()) {
    out += fmt::format("{:<18} {:<9} {:<25} {}\n", fix.id, to_string(fix.kind), settings_text(fix),
                       plain_symbols(style, std::string(fix.title.in(style.language))));
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
