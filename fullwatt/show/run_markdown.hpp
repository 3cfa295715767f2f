#pragma once

#include <string>

#include "catalog/catalog.hpp"

#include "fullwatt/model/explanation.hpp"

namespace fullwatt::show {

/// A run in short, to paste into a bug report.
std::string run_markdown(const model::Explanation& explanation, catalog::Language language);

}  // namespace fullwatt::show
