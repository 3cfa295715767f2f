// YAML from outside: refused with an error or read; what was read is written and read again as the same.

#include <cstdint>
#include <string>

#include "tests/fuzz/require.hpp"

#include "fullwatt/doctor/probe/yaml.hpp"

namespace {

using namespace fullwatt;

/// Well-formed UTF-8 without the code points that YAML cannot carry (U+FDD0 to U+FDEF, and the last two of each plane).
bool is_text(const model::Json& json) {
  try {
    const auto text = json.dump();
    return text.find("\xBF\xBE") == std::string::npos && text.find("\xBF\xBF") == std::string::npos &&
           text.find("\xEF\xB7") == std::string::npos;
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
  if (!is_text(*json)) return 0;
  const auto again = doctor::yaml_to_json(yaml);
  REQUIRE(again.has_value());
  REQUIRE(*again == *json);
  return 0;
}
