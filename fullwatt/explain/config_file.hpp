#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullwatt::explain {

/// One value of a configuration file.
struct ConfigValue {
  std::string key;   ///< the last part of its path, in lower case
  std::string path;  ///< "train.amp"
  std::string value;
  std::string type;  ///< as Python reads it: bool, int, float, str, NoneType; empty where the format has no types
  int line = 0;
};

/// YAML, JSON, TOML and INI by the file's name; what cannot be read gives nothing. A list counts by its length only.
std::vector<ConfigValue> read_config(std::string_view path, const std::string& text);

/// The whole of a text as a finite number.
std::optional<double> real_number(std::string_view text);

}  // namespace fullwatt::explain
