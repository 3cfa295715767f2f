#pragma once

#include <string>
#include <string_view>

namespace fullwatt::show {

/// Text made safe for HTML, in elements and in quoted attributes.
std::string html_escaped(std::string_view text);

/// A whole page: one file, no script, nothing loaded from anywhere.
std::string html_page(std::string_view title, std::string_view language, std::string_view body);

}  // namespace fullwatt::show
