#pragma once

#include <string>

#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// Where each step's time went, what removing each cause would give, and what was found. Touches nothing but its
/// argument.
model::Explanation explain(const model::Run& run);

/// The Python interpreter of the process that trained; empty when there was none.
std::string interpreter_of(const model::Run& run);

}  // namespace fullwatt::explain
