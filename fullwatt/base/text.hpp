#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullwatt::base {

std::string_view trim(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);
/// The lines of a text, without their line ends.
std::vector<std::string_view> lines(std::string_view text);
std::string lower(std::string_view text);
bool contains(std::string_view text, std::string_view part);
std::string join(const std::vector<std::string>& parts, std::string_view separator);
/// A word as one would type it in a shell: in quotes where it would mean something else there.
std::string shell_word(std::string_view word);
std::string shell_line(const std::vector<std::string>& words);
/// The last component of a path.
std::string_view file_name(std::string_view path);
/// The path without its last component.
std::string_view folder_of(std::string_view path);

/// Text from outside made safe for a terminal: control and escape characters, bidirectional overrides and broken
/// UTF-8 become visible replacements; at most `limit` characters, the cut marked.
std::string printable(std::string_view text, std::size_t limit = 500);

/// The one of some words that a mistyped one most likely means; empty when none is near.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& words);

/// The whole of `text` as a number; nothing when any character is left over.
template <class T>
std::optional<T> number(std::string_view text, int radix = 10) {
  text = trim(text);
  if (radix == 16 && (text.starts_with("0x") || text.starts_with("0X"))) text.remove_prefix(2);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, radix);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

/// A list such as "0-3,8,10-11" as single numbers, as the kernel writes sets of processors. Broken parts are left out.
std::vector<int> number_list(std::string_view text, std::size_t limit = 8192);
/// The other way round: {0,1,2,5} → "0-2,5".
std::string number_ranges(const std::vector<int>& numbers);

}  // namespace fullwatt::base
