#include "fullwatt/show/style.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

#include "fullwatt/base/text.hpp"

namespace fullwatt::show {
namespace {

std::string value_of(const base::Environment& environment, const char* name) {
  const auto at = environment.find(name);
  return at == environment.end() ? std::string{} : at->second;
}

bool wants_color(const StyleFlags& flags, const base::Environment& environment, bool is_terminal) {
  if (flags.color == "always") return true;
  if (flags.color == "never") return false;
  if (!value_of(environment, "NO_COLOR").empty()) return false;
  const auto force = value_of(environment, "CLICOLOR_FORCE");
  if (!force.empty() && force != "0") return true;
  if (value_of(environment, "CLICOLOR") == "0") return false;
  return is_terminal && value_of(environment, "TERM") != "dumb";
}

std::string locale_of(const base::Environment& environment, const char* category) {
  for (const auto* name : {"LC_ALL", category, "LANG"}) {
    if (auto value = value_of(environment, name); !value.empty()) return value;
  }
  return {};
}

std::size_t character_length(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

std::uint32_t code_point(std::string_view character) {
  if (character.size() == 1) return static_cast<unsigned char>(character[0]);
  std::uint32_t point = static_cast<unsigned char>(character[0]) & (0xFFU >> (character.size() + 1));
  for (std::size_t i = 1; i < character.size(); ++i)
    point = (point << 6U) | (static_cast<unsigned char>(character[i]) & 0x3FU);
  return point;
}

/// Ranges of wide characters (Unicode East Asian Width W and F, the blocks that Chinese text uses).
bool is_wide(std::uint32_t point) {
  return (point >= 0x1100 && point <= 0x115F) || (point >= 0x2E80 && point <= 0xA4CF) ||
         (point >= 0xAC00 && point <= 0xD7A3) || (point >= 0xF900 && point <= 0xFAFF) ||
         (point >= 0xFE30 && point <= 0xFE6F) || (point >= 0xFF00 && point <= 0xFF60) ||
         (point >= 0xFFE0 && point <= 0xFFE6) || (point >= 0x1F300 && point <= 0x1FAFF) ||
         (point >= 0x20000 && point <= 0x3FFFD);
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  while (!text.empty()) {
    const auto length = std::min(character_length(text.front()), text.size());
    all.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return all;
}

/// Pieces that must stay together: a word, or a single wide character.
std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> all;
  bool joining = false;
  for (auto character : characters(text)) {
    const bool blank = character == " ";
    const bool wide = !blank && is_wide(code_point(character));
    if (blank || wide || !joining) {
      all.emplace_back(character);
    } else {
      all.back() += character;
    }
    joining = !blank && !wide;
  }
  return all;
}

}  // namespace

Style style_for(const StyleFlags& flags, const base::Environment& environment, bool is_terminal, int columns) {
  Style style;
  style.color = wants_color(flags, environment, is_terminal);
  const auto charset = base::lower(locale_of(environment, "LC_CTYPE"));
  style.unicode = base::contains(charset, "utf-8") || base::contains(charset, "utf8");
  style.width = std::clamp(columns > 0 ? columns : 100, 40, 110);
  const auto language = flags.language.empty() ? locale_of(environment, "LC_MESSAGES") : flags.language;
  const bool chinese = language.starts_with("zh");
  // Chinese cannot be written in ASCII: without a UTF-8 locale the reader gets English, unless asked for by name.
  style.language =
      chinese && (style.unicode || !flags.language.empty()) ? catalog::Language::zh : catalog::Language::en;
  if (style.language == catalog::Language::zh) style.unicode = true;
  return style;
}

std::string paint(const Style& style, Ink ink, std::string_view text) {
  constexpr std::array kCodes{"",         "\x1b[1m",  "\x1b[2m",  "\x1b[31m", "\x1b[33m",
                              "\x1b[32m", "\x1b[36m", "\x1b[35m", "\x1b[34m"};
  if (!style.color || ink == Ink::plain || text.empty()) return std::string(text);
  return kCodes.at(static_cast<std::size_t>(ink)) + std::string(text) + "\x1b[0m";
}

int display_width(std::string_view text) {
  int width = 0;
  for (auto character : characters(text)) width += is_wide(code_point(character)) ? 2 : 1;
  return width;
}

std::vector<std::string> wrap(std::string_view text, int width) {
  std::vector<std::string> lines(1);
  for (const auto& piece : pieces(text)) {
    const bool fits = display_width(lines.back()) + display_width(piece) <= width;
    if (!fits && !lines.back().empty()) {
      while (lines.back().ends_with(' ')) lines.back().pop_back();
      lines.emplace_back();
    }
    if (piece != " " || !lines.back().empty()) lines.back() += piece;
  }
  while (lines.back().ends_with(' ')) lines.back().pop_back();
  if (lines.back().empty() && lines.size() > 1) lines.pop_back();
  return lines;
}

std::string plain_symbols(const Style& style, std::string text) {
  if (style.unicode) return text;
  constexpr std::array kSymbols{std::pair{"×", "x"},  std::pair{"·", "-"},  std::pair{"…", "..."},
                                std::pair{"→", "->"}, std::pair{"≥", ">="}, std::pair{"°", " deg "},
                                std::pair{"–", "-"},  std::pair{"’", "'"},  std::pair{"✓", "+"}};
  for (const auto& [symbol, plain] : kSymbols) {
    for (auto at = text.find(symbol); at != std::string::npos; at = text.find(symbol, at))
      text.replace(at, std::string_view(symbol).size(), plain);
  }
  std::string out;
  for (auto character : characters(text)) out += character.size() == 1 ? std::string(character) : std::string("?");
  return out;
}

}  // namespace fullwatt::show
