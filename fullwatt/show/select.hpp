#pragma once

#include <string>

#include "fullwatt/model/json.hpp"
#include "fullwatt/model/selection.hpp"
#include "fullwatt/show/style.hpp"

namespace fullwatt::show {

std::string select_text(const model::Selection& selection, const Style& style);
model::Json select_json(const model::Selection& selection);

}  // namespace fullwatt::show
