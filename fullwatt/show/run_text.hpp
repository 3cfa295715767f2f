#pragma once

#include <string>

#include "fullwatt/model/explanation.hpp"
#include "fullwatt/show/style.hpp"

namespace fullwatt::show {

/// A run's report for a terminal; `verbose` adds evidence, more lines of each cause and settings that are as
/// configured.
std::string run_text(const model::Explanation& explanation, const Style& style, bool verbose = false);

}  // namespace fullwatt::show
