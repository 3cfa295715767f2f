#include "fullwatt/cli/agent_paths.hpp"

#include <filesystem>
#include <vector>

#include "fullwatt/cli/install_paths.hpp"

namespace fullwatt::cli {
namespace {

namespace fs = std::filesystem;

/// The first that exists, as a full path.
std::string first_of(const std::vector<fs::path>& candidates) {
  for (const auto& path : candidates) {
    std::error_code error;
    if (fs::exists(path, error)) return fs::weakly_canonical(path, error).string();
  }
  return {};
}

std::string named(const base::Environment& environment, const std::string& variable) {
  const auto found = environment.find(variable);
  return found != environment.end() ? found->second : std::string();
}

}  // namespace

base::Result<AgentPaths> find_agent(const base::Environment& environment) {
  const auto program = fs::path(base::own_executable()).parent_path();
  AgentPaths paths{named(environment, "FULLWATT_RECORDER"), named(environment, "FULLWATT_AGENT_PATH")};
  if (paths.recorder.empty()) {
    paths.recorder = first_of({program / ".." / kLibraryFolder / "libfullwatt_recorder.so",
                               program / ".." / "lib" / "libfullwatt_recorder.so"});
  }
  if (paths.python.empty()) {
    paths.python =
        first_of({program / ".." / kDataFolder / "fullwatt" / "python", program / ".." / ".." / ".." / "python"});
  }
  if (paths.recorder.empty() || paths.python.empty() || !fs::exists(paths.site())) {
    return base::fail(base::Error::Kind::not_found, "the agent or the recorder is missing beside this program",
                      "Build or install fullwatt again; or set FULLWATT_RECORDER and FULLWATT_AGENT_PATH.");
  }
  return paths;
}

base::Environment with_agent(base::Environment environment, const AgentPaths& paths, const std::string& run_folder) {
  auto& search = environment["PYTHONPATH"];
  search = search.empty() ? paths.site() : paths.site() + ":" + search;
  environment["FULLWATT_RUN"] = run_folder;
  environment["FULLWATT_RECORDER"] = paths.recorder;
  environment.erase("FULLWATT_AGENT");
  // Only one library fits in this variable, and the user's own comes first.
  environment.try_emplace("CUDA_INJECTION64_PATH", paths.recorder);
  return environment;
}

}  // namespace fullwatt::cli
