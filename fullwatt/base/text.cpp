#include "fullwatt/base/text.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <numeric>
#include <utility>

namespace fullwatt::base {
namespace {

constexpr std::string_view kBlank = " \t\r\n\v\f";
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Length of the well-formed UTF-8 character at the start of `text`, its code point in `point`; 0 when broken.
std::size_t utf8_length(std::string_view text, std::uint32_t& point) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const auto first = byte(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  point = length == 1 ? first : first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
    point = (point << 6U) | (byte(i) & 0x3FU);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  return point < kSmallest[length] || surrogate || point > 0x10FFFF ? 0 : length;
}

/// Characters that move the cursor, reorder or hide text, and those that Unicode keeps out of texts.
bool is_unsafe(std::uint32_t point) {
  const bool noncharacter = (point & 0xFFFEU) == 0xFFFE || (point >= 0xFDD0 && point <= 0xFDEF);
  return point < 0x20 || (point >= 0x7F && point < 0xA0) || (point >= 0x200B && point <= 0x200F) ||
         (point >= 0x2028 && point <= 0x202E) || (point >= 0x2060 && point <= 0x206F) || point == 0xFEFF ||
         noncharacter;
}

/// How many letters are wrong, missing or too many; two that changed places count once.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before;
  std::vector<std::size_t> above;
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(above, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const auto substitute = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({substitute, above[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::vector<std::string_view> lines(std::string_view text) {
  std::vector<std::string_view> all;
  while (!text.empty()) {
    const auto at = text.find('\n');
    auto line = text.substr(0, at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    all.push_back(line);
    if (at == std::string_view::npos) break;
    text.remove_prefix(at + 1);
  }
  return all;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (const auto& part : parts) {
    if (!out.empty()) out += separator;
    out += part;
  }
  return out;
}

std::string shell_word(std::string_view word) {
  const auto is_plain = [](unsigned char c) {
    return c >= 0x80 || std::isalnum(c) != 0 ||
           std::string_view("_./:@%+=,-").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return std::string(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::vector<std::string> typed;
  std::ranges::transform(words, std::back_inserter(typed), shell_word);
  return join(typed, " ");
}

std::string_view file_name(std::string_view path) {
  const auto at = path.rfind('/');
  return at == std::string_view::npos ? path : path.substr(at + 1);
}

std::string_view folder_of(std::string_view path) {
  const auto at = path.rfind('/');
  if (at == std::string_view::npos) return {};
  return at == 0 ? path.substr(0, 1) : path.substr(0, at);
}

std::string printable(std::string_view text, std::size_t limit) {
  std::string out;
  std::size_t shown = 0;
  for (std::size_t at = 0; at < text.size(); ++shown) {
    if (shown == limit) {
      out += "…";
      break;
    }
    std::uint32_t point = 0;
    const auto length = utf8_length(text.substr(at), point);
    if (length == 1 && (point == '\t' || point == '\n' || point == '\r')) {
      out += ' ';
    } else if (length == 0 || is_unsafe(point)) {
      out += kReplacement;
    } else {
      out += text.substr(at, length);
    }
    at += std::max<std::size_t>(length, 1);
  }
  return out;
}

std::string_view nearest(std::string_view word, const std::vector<std::string_view>& words) {
  if (word.empty() || word.size() > 64 || words.empty()) return {};
  const auto distance = [&](std::string_view other) { return edit_distance(word, other); };
  const auto best = *std::ranges::min_element(words, {}, distance);
  const auto most = std::min(std::max<std::size_t>(3, word.size() / 3), word.size() - 1);
  return distance(best) <= most ? best : std::string_view{};
}

std::vector<int> number_list(std::string_view text, std::size_t limit) {
  std::vector<int> numbers;
  for (auto part : split(trim(text), ',')) {
    const auto dash = part.find('-');
    const auto first = number<int>(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number<int>(part.substr(dash + 1));
    if (!first || !last || *first < 0) continue;
    for (std::int64_t n = *first; n <= *last && numbers.size() < limit; ++n) numbers.push_back(static_cast<int>(n));
  }
  return numbers;
}

std::string number_ranges(const std::vector<int>& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == std::int64_t{numbers[end]} + 1) ++end;
    if (!out.empty()) out += ',';
    out += std::to_string(numbers[i]);
    if (end > i) out += '-' + std::to_string(numbers[end]);
    i = end + 1;
  }
  return out;
}

}  // namespace fullwatt::base
