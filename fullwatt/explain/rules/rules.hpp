#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/explain/evidence.hpp"
#include "fullwatt/explain/source_facts.hpp"
#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/finding.hpp"

namespace fullwatt::explain {

/// Every finding of a run by gain, the largest first, then those without one by severity; a loader that hides what
/// another one would give comes before it. What costs less than two per cent of a step (one where it is certain) is
/// left out.
std::vector<model::Finding> find_all(const Evidence& evidence, const SourceFacts& source,
                                     const std::vector<model::SettingRow>& settings);

}  // namespace fullwatt::explain
