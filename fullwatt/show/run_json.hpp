#pragma once

#include "catalog/catalog.hpp"

#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/json.hpp"

namespace fullwatt::show {

/// docs/run.schema.json describes it.
model::Json run_json(const model::Explanation& explanation, catalog::Language language);

}  // namespace fullwatt::show
