#pragma once

#include <string>
#include <vector>

#include "fullwatt/base/error.hpp"
#include "fullwatt/base/process.hpp"
#include "fullwatt/model/plan.hpp"

namespace fullwatt::tune {

/// Reads a plan from YAML. Whatever is wrong in it is named with its line, and with what was probably meant.
base::Result<model::Plan> parse_plan(const std::string& text);
base::Result<model::Plan> read_plan(const std::string& path);

/// The plan as people read and edit it: every fix with its title and what it gave. `evidence` stands in front of it as
/// comments.
std::string plan_to_yaml(const model::Plan& plan, const std::vector<std::string>& evidence = {});

/// The plan as the agent reads it (python/fullwatt/fixes): JSON with typed settings.
std::string plan_for_agent(const model::Plan& plan);

/// The variables that fixes need before the program starts.
void set_environment(const model::Plan& plan, base::Environment& environment);

}  // namespace fullwatt::tune
