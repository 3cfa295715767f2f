#pragma once

#include <string>

#include "fullwatt/model/explanation.hpp"
#include "fullwatt/show/style.hpp"

namespace fullwatt::show {

struct RunTextOptions {
  bool verbose = false;     ///< evidence, more lines of each cause, and settings that are as configured
  std::string report_file;  ///< the page for a browser, where there is one
};

/// A run's report for a terminal.
std::string run_text(const model::Explanation& explanation, const Style& style, const RunTextOptions& options = {});

}  // namespace fullwatt::show
