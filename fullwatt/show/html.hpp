#pragma once

#include <string>
#include <string_view>

namespace fullwatt::show {

/// Text made safe for HTML, in elements and in quoted attributes.
std::string html_escaped(std::string_view text);

/// A whole page in one file that loads nothing from anywhere; its policy lets only these styles and this script act.
struct HtmlPage {
  std::string_view title;
  std::string_view language;
  std::string_view body;
  std::string_view more_style;  ///< besides the style that all pages share
  std::string_view script;
};
std::string html_page(const HtmlPage& page);

}  // namespace fullwatt::show
