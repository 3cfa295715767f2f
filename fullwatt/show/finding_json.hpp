#pragma once

#include "catalog/catalog.hpp"

#include "fullwatt/model/finding.hpp"
#include "fullwatt/model/json.hpp"

namespace fullwatt::show {

/// A finding with its words.
model::Json finding_json(const model::Finding& finding, catalog::Language language);

}  // namespace fullwatt::show
