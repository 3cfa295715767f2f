#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace fullwatt::base {

using Captures = std::map<std::string, std::string>;

/// Finds `pattern` anywhere in `line`. A pattern is literal text; `*` stands for any run of characters, as short as
/// possible, and `{name}` for the same, captured. At the end of a pattern `{name}` takes the run of non-blanks.
/// Linear in practice, never recursive: log lines are hostile input, and std::regex overflows the stack on them.
std::optional<Captures> match(std::string_view pattern, std::string_view line);

}  // namespace fullwatt::base
