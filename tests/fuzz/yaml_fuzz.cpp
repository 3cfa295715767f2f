// YAML from outside: refused with an error or read; what was read is written and read again as the same.

#include <cstdint>
#include <string>

#include "tests/fuzz/require.hpp"

#include "fullwatt/doctor/probe/yaml.hpp"

namespace {

using namespace fullwatt;

bool is_utf8(const model::Json& json) {
  try {
    return !json.dump().empty();
  } catch (const model::Json::exception&) {
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = doctor::yaml_to_json(std::string(reinterpret_cast<const char*>(data), size));
  if (!json) {
    REQUIRE(!json.error().message.empty());
    return 0;
  }
  const auto yaml = doctor::json_to_yaml(*json);
  if (!is_utf8(*json)) return 0;
  const auto again = doctor::yaml_to_json(yaml);
  REQUIRE(again.has_value());
  REQUIRE(*again == *json);
  return 0;
}
