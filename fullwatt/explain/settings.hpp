#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/explain/evidence.hpp"
#include "fullwatt/explain/source_facts.hpp"
#include "fullwatt/model/explanation.hpp"

namespace fullwatt::explain {

/// Every known setting that the configuration files and arguments declare, beside the value that the training really
/// ran with (D5). Differences first. Keys that are not known are not listed.
std::vector<model::SettingRow> compare_settings(const Evidence& evidence, const SourceFacts& source);

/// Whether a declared value means another thing than the one in force: true, "True", yes and 1 are the same, and bf16
/// is a way of saying that mixed precision is on.
bool values_differ(std::string_view declared, std::string_view in_force);

}  // namespace fullwatt::explain
