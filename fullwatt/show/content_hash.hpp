#pragma once

#include <string>
#include <string_view>

namespace fullwatt::show {

/// "sha256-…" of a text, as a Content-Security-Policy names the one script or style that may act.
std::string content_hash(std::string_view text);

}  // namespace fullwatt::show
