#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include <sys/wait.h>
#include <unistd.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/cli/command.hpp"
#include "fullwatt/tune/fence.hpp"
#include "fullwatt/tune/sandbox.hpp"
#include "fullwatt/tune/supervise.hpp"

namespace fullwatt::cli {
namespace {

namespace fs = std::filesystem;

/// Whether the view of the file system can be built here: tried by a process that ends with it.
bool sandbox_is_possible(const tune::SandboxOptions& options) {
  if (const char* way = std::getenv("FULLWATT_SANDBOX"); way != nullptr && std::string_view(way) == "fence")
    return false;
  const auto child = ::fork();
  if (child == 0) ::_exit(tune::enter_sandbox(options) ? 0 : 1);
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_writable(const char* path, const tune::SandboxOptions& options) {
  return path != nullptr && std::ranges::any_of(options.writable, [&](const auto& folder) {
           return std::string_view(path).starts_with(folder + "/");
         });
}

/// Without the view, nothing may be written but in the scratch folder, where the agent diverts what Python writes
/// (python/fullwatt/diversion.py) and where caches and temporary files go.
base::Result<void> enter_fence(const tune::SandboxOptions& options) {
  std::error_code error;
  for (const auto* name : {"/files", "/tmp"}) fs::create_directories(options.scratch + name, error);
  ::setenv("FULLWATT_DIVERSION", (options.scratch + "/files").c_str(), 1);
  ::setenv("TMPDIR", (options.scratch + "/tmp").c_str(), 1);
  if (!is_writable(std::getenv("TRITON_CACHE_DIR"), options))
    ::setenv("TRITON_CACHE_DIR", (options.scratch + "/triton").c_str(), 1);
  ::setenv("CUDA_CACHE_PATH", (options.scratch + "/cuda").c_str(), 1);
  auto writable = options.writable;
  writable.push_back(options.scratch);
  return tune::raise_fence(writable);
}

}  // namespace

int run_trial_child(const std::vector<std::string>& arguments) {
  const auto end = std::ranges::find(arguments, "--");
  const auto limit = arguments.size() > 2 ? base::number<int>(arguments[1]) : std::nullopt;
  if (!limit || *limit <= 0 || arguments.end() - end < 2) {
    return report({base::Error::Kind::bad_input, "usage: fullwatt __trial SCRATCH MILLISECONDS WRITABLE… -- COMMAND…",
                   "This is how 'fullwatt tune' runs a trial; it is not meant for people."});
  }
  tune::SandboxOptions options;
  options.scratch = arguments[0];
  options.writable.assign(arguments.begin() + 2, end);
  const auto inside = sandbox_is_possible(options) ? tune::enter_sandbox(options) : enter_fence(options);
  if (!inside) return report(inside.error(), kNotExamined);
  const auto status = tune::supervise({end + 1, arguments.end()}, std::chrono::milliseconds(*limit));
  return status ? *status : report(status.error());
}

}  // namespace fullwatt::cli
