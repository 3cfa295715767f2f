#include "fullwatt/show/code_html.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/html.hpp"

namespace fullwatt::show {
namespace {

constexpr std::array<std::string_view, 36> kKeywords{
    "False", "None",     "True", "and",    "as",     "assert", "async",  "await",   "break",
    "class", "continue", "def",  "del",    "elif",   "else",   "except", "finally", "for",
    "from",  "global",   "if",   "import", "in",     "is",     "lambda", "match",   "nonlocal",
    "not",   "or",       "pass", "raise",  "return", "try",    "while",  "with",    "yield"};

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

std::string marked(std::string_view css, std::string_view text) {
  return "<span class=\"" + std::string(css) + "\">" + html_escaped(text) + "</span>";
}

/// Goes through a file line by line and remembers a string that is still open.
class Marker {
 public:
  std::string line(std::string_view text) {
    std::string out;
    while (!text.empty()) {
      const auto length = open_.empty() ? token(text, out) : rest_of_string(text, 0, out);
      text.remove_prefix(length);
    }
    if (open_.size() == 1) open_.clear();
    return out;
  }

 private:
  std::size_t token(std::string_view text, std::string& out) {
    const char first = text.front();
    if (first == '#') {
      out += marked("hc", text);
      return text.size();
    }
    if (first == '"' || first == '\'') {
      const std::string triple(3, first);
      open_ = text.starts_with(triple) ? triple : std::string(1, first);
      return rest_of_string(text, open_.size(), out);
    }
    std::size_t end = 1;
    if (is_word(first)) {
      while (end < text.size() && is_word(text[end])) ++end;
      const auto word = text.substr(0, end);
      const bool keyword = std::ranges::find(kKeywords, word) != kKeywords.end();
      out += keyword ? marked("hk", word) : html_escaped(word);
      return end;
    }
    while (end < text.size() && !is_word(text[end]) &&
           std::string_view("#\"'").find(text[end]) == std::string_view::npos)
      ++end;
    out += html_escaped(text.substr(0, end));
    return end;
  }

  std::size_t rest_of_string(std::string_view text, std::size_t from, std::string& out) {
    auto end = from;
    while (end < text.size() && !text.substr(end).starts_with(open_)) end += text[end] == '\\' ? 2 : 1;
    const bool closed = end < text.size();
    end = std::min(text.size(), closed ? end + open_.size() : end);
    if (closed) open_.clear();
    out += marked("hs", text.substr(0, end));
    return end;
  }

  std::string open_;  ///< the quotes that end it; empty outside strings
};

std::string with_blanks_for_tabs(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\t') {
      do out += ' ';
      while (out.size() % 4 != 0);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> code_html(std::string_view source) {
  std::vector<std::string> out;
  Marker marker;
  for (const auto text : base::lines(source)) out.push_back(marker.line(with_blanks_for_tabs(text)));
  return out;
}

}  // namespace fullwatt::show
