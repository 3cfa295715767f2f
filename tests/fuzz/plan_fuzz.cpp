// A plan from outside: refused with an error, or read and written again.

#include <cstdint>
#include <string>

#include "tests/fuzz/require.hpp"

#include "fullwatt/tune/plan_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fullwatt;
  const auto plan = tune::parse_plan(std::string(reinterpret_cast<const char*>(data), size));
  if (!plan) {
    REQUIRE(!plan.error().message.empty());
    return 0;
  }
  REQUIRE(!tune::plan_to_yaml(*plan).empty());
  return 0;
}
