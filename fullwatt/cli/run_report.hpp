#pragma once

#include <string>

#include "catalog/catalog.hpp"

#include "fullwatt/base/error.hpp"
#include "fullwatt/model/explanation.hpp"

namespace fullwatt::cli {

/// A run and what it means.
struct ExplainedRun {
  model::Run run;
  model::Explanation explanation;
};

/// Loads a run folder, the machine included, and explains it.
base::Result<ExplainedRun> explain_folder(const std::string& folder);

/// Keeps the user's sources and configuration files in the run folder, and what can be read in them. Each file once;
/// what belongs to Python or to libraries is not kept.
void keep_sources(const std::string& folder);

/// The run's page for a browser, as one would type it from here; empty when it was not written.
std::string page_of(const std::string& folder);

/// Writes report.json and report.html into the run folder.
base::Result<void> write_reports(const std::string& folder, const ExplainedRun& explained, catalog::Language language);

}  // namespace fullwatt::cli
