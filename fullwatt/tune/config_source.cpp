#include "fullwatt/tune/config_source.hpp"

#include <algorithm>

#include "fullwatt/base/text.hpp"

namespace fullwatt::tune {
namespace {

constexpr auto kNowhere = std::string::npos;

/// Where a line begins and ends.
std::optional<std::pair<std::size_t, std::size_t>> line_at(const std::string& text, int line) {
  std::size_t begin = 0;
  for (int i = 1; i < line; ++i) {
    begin = text.find('\n', begin);
    if (begin == kNowhere) return std::nullopt;
    ++begin;
  }
  return std::pair(begin, std::min(text.find('\n', begin), text.size()));
}

/// Whether the text that ends here is a key and what stands between it and its value.
bool is_behind_a_key(std::string_view before) {
  before = base::trim(before);
  return before.ends_with(':') || before.ends_with('=');
}

bool is_end_of_value(std::string_view behind) {
  behind = base::trim(behind);
  return behind.empty() || behind.front() == ',' || behind.front() == '}' || behind.front() == ']' ||
         behind.front() == '#' || behind.front() == ';';
}

}  // namespace

std::optional<std::string> with_config_value(const std::string& text, int line, std::string_view before,
                                             std::string_view after) {
  const auto range = line_at(text, line);
  if (!range || before.empty()) return std::nullopt;
  const std::string_view whole(text);
  std::size_t found = kNowhere;
  for (auto at = text.find(before, range->first); at != kNowhere && at + before.size() <= range->second;
       at = text.find(before, at + 1)) {
    const auto left = whole.substr(range->first, at - range->first);
    const auto right = whole.substr(at + before.size(), range->second - at - before.size());
    if (!is_behind_a_key(left) || !is_end_of_value(right)) continue;
    if (found != kNowhere) return std::nullopt;
    found = at;
  }
  if (found == kNowhere) return std::nullopt;
  return text.substr(0, found) + std::string(after) + text.substr(found + before.size());
}

}  // namespace fullwatt::tune
