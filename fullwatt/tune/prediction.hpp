#pragma once

#include <optional>
#include <string_view>

#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/proof.hpp"

namespace fullwatt::tune {

/// What a step should get shorter by, said before a fix is tried. A fix that takes away a cost has a figure: what the
/// explanation says that the cost is. One that changes kernels has an interval: from what it may cost to the most that
/// such kernels can gain.
model::Prediction predict(const model::Explanation& explanation, std::string_view fix);

/// The most that launching may cost a step in the end: what it costs now, or what is left of it behind kernels when
/// other fixes have made these as short as they can.
double launching_ms(const model::Explanation& explanation);

/// Forward, backward and the optimiser, where the CPUs do the training.
double computing_ms(const model::Explanation& explanation);

}  // namespace fullwatt::tune
