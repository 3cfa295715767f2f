#include "fullwatt/tune/python_source.hpp"

#include <algorithm>
#include <cctype>
#include <vector>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::tune {
namespace {

constexpr auto kNowhere = std::string::npos;

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool is_blank(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

/// Behind a string literal that begins at a quote.
std::size_t past_string(const std::string& text, std::size_t at) {
  const auto quote = text.substr(at, text.compare(at, 3, std::string(3, text[at])) == 0 ? 3 : 1);
  for (auto i = at + quote.size(); i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text.compare(i, quote.size(), quote) == 0) {
      return i + quote.size();
    }
  }
  return text.size();
}

/// The next place behind what has no meaning here: strings and comments. The same place where there are none.
std::size_t past_opaque(const std::string& text, std::size_t at) {
  if (text[at] == '"' || text[at] == '\'') return past_string(text, at);
  if (text[at] == '#') return std::min(text.find('\n', at), text.size());
  return at;
}

/// One argument of a call, without the blanks around it.
struct Argument {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::string keyword;
  std::size_t value = 0;  ///< where its value begins
};

struct Call {
  std::vector<Argument> arguments;
  std::size_t end = 0;  ///< of the closing bracket
};

std::optional<Argument> argument_between(const std::string& text, std::size_t begin, std::size_t end) {
  while (begin < end && is_blank(text[begin])) ++begin;
  while (end > begin && is_blank(text[end - 1])) --end;
  if (begin == end) return std::nullopt;
  Argument argument{begin, end, {}, begin};
  auto at = begin;
  while (at < end && is_name(text[at])) ++at;
  auto equals = at;
  while (equals < end && is_blank(text[equals])) ++equals;
  if (at > begin && equals < end && text[equals] == '=' && (equals + 1 == end || text[equals + 1] != '=')) {
    argument.keyword = text.substr(begin, at - begin);
    argument.value = equals + 1;
    while (argument.value < end && is_blank(text[argument.value])) ++argument.value;
  }
  return argument;
}

/// The call whose opening bracket stands there. Nothing where a comment stands between its arguments: what belongs to
/// it cannot be told.
std::optional<Call> call_at(const std::string& text, std::size_t open) {
  Call call;
  int depth = 0;
  auto begin = open + 1;
  for (auto i = open; i < text.size(); ++i) {
    if (text[i] == '#') return std::nullopt;
    if (const auto next = past_opaque(text, i); next != i) {
      i = next - 1;
      continue;
    }
    const bool closes = text[i] == ')' || text[i] == ']' || text[i] == '}';
    if (text[i] == '(' || text[i] == '[' || text[i] == '{') ++depth;
    if (closes) --depth;
    const bool ends = closes && depth == 0;
    if (!ends && (text[i] != ',' || depth != 1)) continue;
    if (auto argument = argument_between(text, begin, i)) call.arguments.push_back(*std::move(argument));
    begin = i + 1;
    if (ends) {
      call.end = i;
      return call;
    }
  }
  return std::nullopt;
}

std::size_t line_begin(const std::string& text, int line) {
  std::size_t at = 0;
  for (int i = 1; i < line && at != kNowhere; ++i) {
    at = text.find('\n', at);
    if (at != kNowhere) ++at;
  }
  return at;
}

/// The opening bracket of the only call of `callee` on a line.
std::size_t only_call(const std::string& text, int line, std::string_view callee) {
  const auto begin = line_begin(text, line);
  if (begin == kNowhere) return kNowhere;
  const auto end = std::min(text.find('\n', begin), text.size());
  auto found = kNowhere;
  for (auto i = begin; i < end; ++i) {
    if (const auto next = past_opaque(text, i); next != i) {
      i = next - 1;
      continue;
    }
    const auto open = i + callee.size();
    const bool whole = (i == 0 || !is_name(text[i - 1])) && open < end && text[open] == '(';
    if (!whole || text.compare(i, callee.size(), callee) != 0) continue;
    if (found != kNowhere) return kNowhere;
    found = open;
  }
  return found;
}

/// Behind the last argument; on a line of its own where the others have theirs.
std::string appended(const std::string& text, const Call& call, const std::string& argument) {
  if (call.arguments.empty()) return text.substr(0, call.end) + argument + text.substr(call.end);
  const auto& last = call.arguments.back();
  const auto line = text.rfind('\n', last.begin);
  const auto first = line == kNowhere ? 0 : text.find_first_not_of(" \t", line + 1);
  const bool own_line = first == last.begin && text.find('\n', last.end) < call.end;
  const auto separator = own_line ? ",\n" + text.substr(line + 1, first - line - 1) : std::string(", ");
  return text.substr(0, last.end) + separator + argument + text.substr(last.end);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size() - 1);
    lines.push_back(text.substr(at, end + 1 - at));
    at = end + 1;
  }
  return lines;
}

/// Where the imports at the top end: behind the last of them, with comments, blank lines and a docstring between.
struct Imports {
  std::size_t end = 0;
  bool torch = false;
};

Imports imports_of(const std::string& text) {
  Imports imports;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    const auto line = text.substr(at, end - at);
    if (line.empty() || line[0] == '#' || is_blank(line[0])) {
      at = end + 1;
    } else if (line[0] == '"' || line[0] == '\'') {
      at = past_string(text, at);
      at = std::min(text.find('\n', at), text.size()) + 1;
    } else if (line.starts_with("import ") || line.starts_with("from ")) {
      const auto open = line.find('(');
      const auto closed = open != kNowhere ? text.find(')', at + open) : at;
      if (closed == kNowhere) return imports;
      at = std::min(text.find('\n', closed), text.size()) + 1;
      imports.end = std::min(at, text.size());
      imports.torch = imports.torch || line == "import torch" || line.starts_with("import torch ") ||
                      line.starts_with("import torch,") || line.starts_with("import torch.") ||
                      line.ends_with(", torch");
    } else {
      break;
    }
  }
  return imports;
}

/// By dynamic programming over the lines between what both have in common at their beginning and end.
std::vector<std::pair<char, std::string>> marked(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::vector<int>> common(a.size() + 1, std::vector<int>(b.size() + 1, 0));
  for (auto i = a.size(); i-- > 0;) {
    for (auto j = b.size(); j-- > 0;)
      common[i][j] = a[i] == b[j] ? common[i + 1][j + 1] + 1 : std::max(common[i + 1][j], common[i][j + 1]);
  }
  std::vector<std::pair<char, std::string>> lines;
  for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    if (i < a.size() && j < b.size() && a[i] == b[j]) {
      lines.emplace_back(' ', a[i]);
      ++i, ++j;
    } else if (i < a.size() && (j == b.size() || common[i + 1][j] >= common[i][j + 1])) {
      lines.emplace_back('-', a[i++]);
    } else {
      lines.emplace_back('+', b[j++]);
    }
  }
  return lines;
}

}  // namespace

std::optional<std::string> with_argument(const std::string& source, int line, std::string_view callee,
                                         std::string_view keyword, std::string_view value) {
  const auto open = only_call(source, line, callee);
  const auto call = open != kNowhere ? call_at(source, open) : std::nullopt;
  if (!call) return std::nullopt;
  for (const auto& argument : call->arguments) {
    if (source.compare(argument.begin, 2, "**") == 0) return std::nullopt;
    if (argument.keyword != keyword) continue;
    if (source.substr(argument.value, argument.end - argument.value) == value) return std::nullopt;
    return source.substr(0, argument.value) + std::string(value) + source.substr(argument.end);
  }
  return appended(source, *call, fmt::format("{}={}", keyword, value));
}

std::optional<std::string> argument_of(const std::string& source, int line, std::string_view callee,
                                       std::string_view keyword) {
  const auto open = only_call(source, line, callee);
  const auto call = open != kNowhere ? call_at(source, open) : std::nullopt;
  if (!call) return std::nullopt;
  for (const auto& argument : call->arguments) {
    if (argument.keyword == keyword) return source.substr(argument.value, argument.end - argument.value);
  }
  return std::nullopt;
}

std::optional<std::string> below_imports(const std::string& source, std::string_view statements) {
  const auto imports = imports_of(source);
  if (!imports.torch) return std::nullopt;
  const auto head = source.substr(0, imports.end);
  return head + (head.ends_with('\n') ? "\n" : "\n\n") + std::string(statements) + source.substr(imports.end);
}

std::optional<std::string> with_assignment(const std::string& source, int line, std::string_view attribute,
                                           std::string_view value) {
  const auto begin = line_begin(source, line);
  if (begin == kNowhere) return std::nullopt;
  const auto end = std::min(source.find('\n', begin), source.size());
  const auto text = source.substr(begin, end - begin);
  const auto equals = text.find('=');
  if (equals == kNowhere || text.find_first_of("=#\"'(", equals + 1) != kNowhere) return std::nullopt;
  const auto left = text.substr(0, equals);
  if (!base::trim(left).ends_with(attribute)) return std::nullopt;
  return source.substr(0, begin) + left + "= " + std::string(value) + source.substr(end);
}

std::string unified_diff(const std::string& name, const std::string& before, const std::string& after) {
  constexpr std::size_t kContext = 3;
  const auto lines = marked(lines_of(before), lines_of(after));
  std::string diff;
  std::size_t old_line = 1;
  std::size_t new_line = 1;
  for (std::size_t i = 0; i < lines.size();) {
    const auto is_near = [&](std::size_t at) {
      const auto from = lines.begin() + static_cast<std::ptrdiff_t>(at > kContext ? at - kContext : 0);
      const auto to = lines.begin() + static_cast<std::ptrdiff_t>(std::min(at + kContext + 1, lines.size()));
      return std::any_of(from, to, [](const auto& line) { return line.first != ' '; });
    };
    if (!is_near(i)) {
      ++old_line, ++new_line, ++i;
      continue;
    }
    std::string hunk;
    const auto old_start = old_line;
    const auto new_start = new_line;
    for (; i < lines.size() && is_near(i); ++i) {
      const auto& [mark, line] = lines[i];
      hunk += mark + line + (line.ends_with('\n') ? "" : "\n\\ No newline at end of file\n");
      old_line += mark != '+' ? 1 : 0;
      new_line += mark != '-' ? 1 : 0;
    }
    const auto old_count = old_line - old_start;
    const auto new_count = new_line - new_start;
    diff += fmt::format("@@ -{},{} +{},{} @@\n{}", old_count > 0 ? old_start : old_start - 1, old_count,
                        new_count > 0 ? new_start : new_start - 1, new_count, hunk);
  }
  return diff.empty() ? diff : fmt::format("--- {0}\n+++ {0}\n{1}", name, diff);
}

}  // namespace fullwatt::tune
