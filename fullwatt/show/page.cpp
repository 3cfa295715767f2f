#include "fullwatt/show/page.hpp"

#include <algorithm>

namespace fullwatt::show {
namespace {

constexpr int kEntryIndent = 4;
constexpr int kEntryLabel = 8;
constexpr int kNarrowest = 20;

constexpr char kHeldBlank = '\x01';

std::string blanks(int count) {
  return std::string(static_cast<std::size_t>(std::max(0, count)), ' ');
}

/// Lines in which a number stays with its unit.
std::vector<std::string> wrapped(std::string text, int width) {
  for (const std::string_view unit : {" ms", " %", " s", " min", " h", " W", " µs"}) {
    for (auto at = text.find(unit); at != std::string::npos; at = text.find(unit, at + 1)) {
      const bool after_digit = at > 0 && text[at - 1] >= '0' && text[at - 1] <= '9';
      const auto next = at + unit.size();
      const bool is_whole = next >= text.size() || (text[next] & '\x80') != 0 ||
                            std::string_view(" .,;:)").find(text[next]) != std::string_view::npos;
      if (after_digit && is_whole) text[at] = kHeldBlank;
    }
  }
  auto lines = wrap(text, width);
  for (auto& line : lines) std::ranges::replace(line, kHeldBlank, ' ');
  return lines;
}

}  // namespace

Mark severity_mark(model::Severity severity) {
  switch (severity) {
    case model::Severity::error:
      return {"✗", "[x]", Ink::red};
    case model::Severity::warning:
      return {"!", "[!]", Ink::yellow};
    case model::Severity::note:
    case model::Severity::info:
      break;
  }
  return {"i", "[i]", Ink::blue};
}

std::string Page::symbol(const Mark& mark) const {
  return paint(style_, mark.ink, style_.unicode ? mark.symbol : mark.ascii);
}

void Page::lines(const std::vector<std::string>& texts) {
  for (const auto& text : texts) out_ += text + "\n";
}

void Page::heading(std::string_view key) {
  blank();
  out_ += paint(style_, Ink::bold, say(key)) + "\n";
}

void Page::paragraph(std::string_view text, Ink ink, int indent) {
  for (const auto& part :
       wrapped(plain_symbols(style_, std::string(text)), std::max(kNarrowest, style_.width - indent)))
    out_ += blanks(indent) + paint(style_, ink, part) + "\n";
}

void Page::marked(const Mark& mark, std::string_view text, Ink ink) {
  const auto sign = display_width(style_.unicode ? mark.symbol : mark.ascii) + 1;
  bool first = true;
  for (const auto& part :
       wrapped(plain_symbols(style_, std::string(text)), std::max(kNarrowest, style_.width - sign))) {
    out_ += (first ? symbol(mark) + " " : blanks(sign)) + paint(style_, ink, part) + "\n";
    first = false;
  }
}

void Page::entry(std::string_view label, std::string_view text, Ink ink) {
  const int room = std::max(kNarrowest, style_.width - kEntryIndent - kEntryLabel);
  bool first = true;
  for (const auto& part : wrap(text, room)) {
    const auto shown = first ? std::string(label) : std::string{};
    out_ += blanks(kEntryIndent) + paint(style_, Ink::dim, shown) +
            blanks(std::max(1, kEntryLabel - display_width(shown))) + paint(style_, ink, plain_symbols(style_, part)) +
            "\n";
    first = false;
  }
}

void Page::command(const std::string& text) {
  out_ += blanks(kEntryIndent + kEntryLabel) + paint(style_, Ink::bold, "$ " + text) + "\n";
}

}  // namespace fullwatt::show
