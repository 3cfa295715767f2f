#include "fullwatt/show/markdown.hpp"

#include "fullwatt/base/text.hpp"

namespace fullwatt::show {

std::string markdown_escaped(std::string_view text) {
  std::string out;
  for (const char c : base::printable(text, 400)) {
    if (std::string_view("\\`*_{}[]<>|#~").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string markdown_code(std::string_view text) {
  const auto shown = base::printable(text, 400);
  std::string fence = "`";
  while (base::contains(shown, fence)) fence += '`';
  const auto* pad = shown.starts_with('`') || shown.ends_with('`') ? " " : "";
  return fence + pad + shown + pad + fence;
}

}  // namespace fullwatt::show
