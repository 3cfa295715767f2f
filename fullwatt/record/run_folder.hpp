#pragma once

#include <string>
#include <vector>

#include "fullwatt/base/error.hpp"
#include "fullwatt/base/process.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::record {

/// Where runs are kept: FULLWATT_HOME, else .fullwatt in the working directory, else the user's state folder when that
/// cannot be written.
std::string runs_folder(const base::Environment& environment);

/// Makes a new folder for a run, named by time, and removes the oldest ones beyond kMostRuns.
base::Result<std::string> create_run_folder(const std::string& runs);
constexpr std::size_t kMostRuns = 30;

/// The runs, newest first.
std::vector<std::string> list_runs(const std::string& runs);
/// The folder of a run: a path, an id, the beginning of an id, or nothing for the newest.
base::Result<std::string> find_run(const std::string& runs, const std::string& wanted);

base::Result<void> write_info(const std::string& folder, const model::RunInfo& info);
base::Result<model::RunInfo> read_info(const std::string& folder);

/// The spools of a run.
std::vector<std::string> spools(const std::string& folder);

/// Everything in the folder but the machine, which `doctor` reads. Broken parts are left out and told in `remarks`.
base::Result<model::Run> read_run(const std::string& folder, std::vector<std::string>& remarks);

/// Gives back the space that spools of ended processes reserved and did not use.
void shrink_spools(const std::string& folder);

}  // namespace fullwatt::record
