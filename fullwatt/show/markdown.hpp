#pragma once

#include <string>
#include <string_view>

namespace fullwatt::show {

/// Text from outside inside Markdown: it may not open a tag, a link, a table cell or a code span.
std::string markdown_escaped(std::string_view text);
/// A code span whose fence is longer than any run of backticks inside.
std::string markdown_code(std::string_view text);

}  // namespace fullwatt::show
