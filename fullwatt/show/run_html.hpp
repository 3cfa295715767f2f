#pragma once

#include <map>
#include <string>

#include "catalog/catalog.hpp"

#include "fullwatt/model/explanation.hpp"

namespace fullwatt::show {

/// A run's report as one HTML file that loads nothing. `sources` are the user's files by path, as in Run::sources.
std::string run_html(const model::Explanation& explanation, const std::map<std::string, std::string>& sources,
                     catalog::Language language);

}  // namespace fullwatt::show
