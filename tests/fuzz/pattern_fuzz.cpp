// Patterns on hostile log lines: the first line of the input is the pattern, the rest is what it is tried on.

#include <cstdint>
#include <string>

#include "tests/fuzz/require.hpp"

#include "fullwatt/base/pattern.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const auto end = input.find('\n');
  const auto pattern = input.substr(0, end);
  const auto line = end == std::string::npos ? std::string{} : input.substr(end + 1);
  const auto captures = fullwatt::base::match(pattern, line);
  if (pattern.find_first_of("*{") == std::string::npos)
    REQUIRE(captures.has_value() == (line.find(pattern) != std::string::npos));
  if (!captures) return 0;
  for (const auto& [name, value] : *captures) {
    REQUIRE(pattern.find("{" + name + "}") != std::string::npos);
    REQUIRE(line.find(value) != std::string::npos);
  }
  return 0;
}
