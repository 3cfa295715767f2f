#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "catalog/catalog.hpp"

#include "fullwatt/base/process.hpp"

namespace fullwatt::show {

/// How to write for one terminal or pipe.
struct Style {
  bool color = false;
  bool unicode = true;
  int width = 100;
  catalog::Language language = catalog::Language::en;
};

/// Colour: the flag (always, never, auto), then NO_COLOR, CLICOLOR_FORCE, CLICOLOR=0, then whether it is a terminal.
/// Symbols: plain ASCII where the locale is not UTF-8. Language: the flag, then the locale.
struct StyleFlags {
  std::string color = "auto";
  std::string language;
};
Style style_for(const StyleFlags& flags, const base::Environment& environment, bool is_terminal, int columns);

enum class Ink { plain, bold, dim, red, yellow, green, blue, magenta, violet };
std::string paint(const Style& style, Ink ink, std::string_view text);

/// Columns that a text takes on a terminal: Chinese characters take two.
int display_width(std::string_view text);
/// Lines no wider than `width`, broken at blanks, and between characters where a script has none.
std::vector<std::string> wrap(std::string_view text, int width);

/// Replaces the few symbols we print ourselves by ASCII where the terminal has none.
std::string plain_symbols(const Style& style, std::string text);

}  // namespace fullwatt::show
