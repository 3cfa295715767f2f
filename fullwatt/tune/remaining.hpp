#pragma once

#include <vector>

#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/proof.hpp"

namespace fullwatt::tune {

/// What an explained program could still do without, by what that would give: where no fix helps, its author can.
std::vector<model::Finding> remaining(const model::Explanation& explanation);

/// Leaves out what a fix should have mended that was tried, and that gave too little.
void drop_disproved(std::vector<model::Finding>& findings, const std::vector<model::TriedFix>& tried);

}  // namespace fullwatt::tune
