#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fullwatt::tune {

/// In a line (counted from 1) of a configuration file in YAML, JSON, TOML or INI: the value `before` behind its key
/// replaced, everything else as it was. Nothing where the line does not have it exactly once.
std::optional<std::string> with_config_value(const std::string& text, int line, std::string_view before,
                                             std::string_view after);

}  // namespace fullwatt::tune
