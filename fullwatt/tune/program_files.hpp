#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace fullwatt::tune {

/// The program's own files as they are now, by path: those of its command, and those that a trial has imported or read
/// as configuration (facts `program` and `config_file` of its run folder).
nlohmann::json program_files(const std::vector<std::string>& command, const std::string& run_folder);

/// One of them that is not what it was; empty when all are.
std::string changed_file(const nlohmann::json& files);

}  // namespace fullwatt::tune
