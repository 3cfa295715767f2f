#pragma once

#include <string>

#include "fullwatt/base/error.hpp"
#include "fullwatt/base/process.hpp"

namespace fullwatt::cli {

/// The two things that enter a training, found beside this program: in a build folder, an installation, or where
/// FULLWATT_RECORDER and FULLWATT_AGENT_PATH say.
struct AgentPaths {
  std::string recorder;  ///< libfullwatt_recorder.so
  std::string python;    ///< the folder that holds the package `fullwatt`

  std::string site() const { return python + "/fullwatt/site"; }
};
base::Result<AgentPaths> find_agent(const base::Environment& environment);

/// The environment in which the agent and the recorder enter the command and everything it starts.
base::Environment with_agent(base::Environment environment, const AgentPaths& paths, const std::string& run_folder);

}  // namespace fullwatt::cli
