#pragma once

#include <string>

#include "catalog/catalog.hpp"
#include "catalog/fixes.hpp"

#include "fullwatt/show/style.hpp"

namespace fullwatt::show {

/// Everything the catalogue knows of one finding, for a terminal.
std::string explain_text(const catalog::Entry& entry, const Style& style);
/// The same of one fix.
std::string explain_text(const catalog::Fix& fix, const Style& style);
/// One line per fix: id, class, settings, title.
std::string list_fixes(const Style& style);
/// One line per check: id, layer, severity, what can show it, title.
std::string list_checks(const Style& style);

}  // namespace fullwatt::show
