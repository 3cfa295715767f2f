#pragma once

#include <string>

#include "fullwatt/base/error.hpp"
#include "fullwatt/model/json.hpp"

namespace fullwatt::doctor {

/// YAML from outside as JSON. Bounded in size, depth and number of nodes, so that neither nesting nor aliases can
/// exhaust the machine. Below the top-level keys `files` and `environment` every plain scalar is text.
base::Result<model::Json> yaml_to_json(const std::string& text);

/// JSON as YAML for people: long texts as blocks, everything else as short as it can be.
std::string json_to_yaml(const model::Json& json);

}  // namespace fullwatt::doctor
