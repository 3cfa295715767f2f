#pragma once

#include "fullwatt/model/json.hpp"
#include "fullwatt/model/proof.hpp"

namespace fullwatt::show {

/// The answer of `tune` for programs: docs/tune.schema.json.
model::Json tune_json(const model::Tuning& tuning);

}  // namespace fullwatt::show
