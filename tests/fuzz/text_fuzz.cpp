// Text from outside: whatever it is, what we print is UTF-8 without control characters.

#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/fuzz/require.hpp"

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/show/html.hpp"
#include "fullwatt/show/style.hpp"
#include "fullwatt/show/words.hpp"

namespace {

using namespace fullwatt;

bool has_control(const std::string& text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

/// Printing twice changes nothing: all of it is already well-formed and harmless.
void check_printable(const std::string& text) {
  const auto shown = base::printable(text, 100'000);
  REQUIRE(!has_control(shown));
  REQUIRE(base::printable(shown, 100'000) == shown);
  REQUIRE(!has_control(base::printable(text, 7)));
  const auto html = show::html_escaped(text);
  REQUIRE(html.find_first_of("<>\"'") == std::string::npos);
  REQUIRE(!has_control(html));
}

std::string without_blanks(std::string text) {
  std::erase(text, ' ');
  return text;
}

void check_wrap(const std::string& text) {
  std::string joined;
  for (const auto& line : show::wrap(text, 20)) {
    REQUIRE(show::display_width(line) <= 20 || line.find(' ') == std::string::npos);
    joined += line;
  }
  REQUIRE(without_blanks(joined) == without_blanks(text));
  for (const char c : show::plain_symbols({.unicode = false}, text)) REQUIRE(static_cast<unsigned char>(c) < 0x80);
}

void check_numbers(const std::string& text) {
  const auto numbers = base::number_list(text, 1000);
  REQUIRE(numbers.size() <= 1000);
  REQUIRE(std::ranges::all_of(numbers, [](int n) { return n >= 0; }));
  if (std::ranges::is_sorted(numbers)) REQUIRE(base::number_list(base::number_ranges(numbers), 1000) == numbers);
  const base::Version version(text);
  REQUIRE(version == base::Version(text));
  REQUIRE(!(version < version));
}

void check_command(const std::string& text) {
  const auto command = show::fill_command("run {value} end", {{"value", text}});
  REQUIRE(!has_control(command));
  REQUIRE(command.starts_with("run ") && command.ends_with(" end"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check_printable(text);
  check_wrap(base::printable(text, 100'000));
  show::wrap(text, 20);
  check_numbers(text);
  check_command(text);
  base::lines(text);
  base::split(text, ',');
  base::library_version(text);
  return 0;
}
