#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/model/finding.hpp"
#include "fullwatt/show/style.hpp"

namespace fullwatt::show {

/// A sign in front of a line, with what stands for it where the terminal has ASCII only.
struct Mark {
  std::string_view symbol;
  std::string_view ascii;
  Ink ink;
};
Mark severity_mark(model::Severity severity);

/// Builds a report line by line; knows the style so that its sections do not have to.
class Page {
 public:
  explicit Page(const Style& style) : style_(style) {}

  std::string say(std::string_view key) const { return std::string(catalog::label(key, style_.language)); }
  std::string symbol(const Mark& mark) const;

  void blank() { out_ += '\n'; }
  void line(const std::string& text) { out_ += plain_symbols(style_, text) + "\n"; }
  void lines(const std::vector<std::string>& texts);
  void heading(std::string_view key);
  /// Wrapped text behind an indent.
  void paragraph(std::string_view text, Ink ink = Ink::plain, int indent = 0);
  /// Wrapped text behind a sign.
  void marked(const Mark& mark, std::string_view text, Ink ink = Ink::plain);
  /// A label on the left, wrapped text on the right of it.
  void entry(std::string_view label, std::string_view text, Ink ink = Ink::plain);
  /// A command stands on a line of its own and is never wrapped: it is there to be copied.
  void command(const std::string& text);

  const Style& style() const { return style_; }
  std::string take() { return std::move(out_); }

 private:
  Style style_;
  std::string out_;
};

}  // namespace fullwatt::show
