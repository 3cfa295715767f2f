#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fullwatt::show {

/// A file of Python (or of settings, which look alike) as HTML, line by line: comments, strings and keywords marked,
/// everything escaped.
std::vector<std::string> code_html(std::string_view source);

}  // namespace fullwatt::show
