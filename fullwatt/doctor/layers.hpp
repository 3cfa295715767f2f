#pragma once

#include <vector>

#include "fullwatt/model/finding.hpp"
#include "fullwatt/model/machine.hpp"

namespace fullwatt::doctor {

/// How far each of the five layers got, in one line each.
std::vector<model::LayerStatus> layer_statuses(const model::Machine& machine, const model::Diagnosis& diagnosis);

}  // namespace fullwatt::doctor
