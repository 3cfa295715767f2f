#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/cli/command.hpp"
#include "fullwatt/tune/fence.hpp"
#include "fullwatt/tune/lookout.hpp"
#include "fullwatt/tune/sandbox.hpp"
#include "fullwatt/tune/supervise.hpp"

namespace fullwatt::cli {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kLongestShown = 400;

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

std::vector<std::string> open_folders(const tune::SandboxOptions& options) {
  auto folders = options.writable;
  folders.push_back(options.scratch);
  return folders;
}

/// What programs keep there they can do without; the second one is the driver's.
std::vector<std::string> user_caches() {
  const char* home = std::getenv("HOME");
  const char* cache = std::getenv("XDG_CACHE_HOME");
  std::vector<std::string> folders;
  if (home != nullptr) folders = {std::string(home) + "/.cache", std::string(home) + "/.nv"};
  if (cache != nullptr && *cache != '\0') folders.emplace_back(cache);
  return folders;
}

/// A name of a folder that leaves room for sockets in it, whose paths have 107 letters at most; good as long as this
/// process lives.
std::string short_name(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  return descriptor >= 0 ? fmt::format("/proc/{}/fd/{}", ::getpid(), descriptor) : folder;
}

/// Without the view, nothing may be written but in the scratch folder, where the agent diverts what Python writes
/// (python/fullwatt/diversion.py) and where caches and temporary files go.
base::Result<void> enter_fence(const tune::SandboxOptions& options) {
  std::error_code error;
  for (const auto* name : {"/files", "/tmp"}) fs::create_directories(options.scratch + name, error);
  ::setenv("FULLWATT_DIVERSION", (options.scratch + "/files").c_str(), 1);
  ::setenv("FULLWATT_UNDIVERTED", base::join(open_folders(options), ":").c_str(), 1);
  ::setenv("TMPDIR", short_name(options.scratch + "/tmp").c_str(), 1);
  if (!is_writable(std::getenv("TRITON_CACHE_DIR"), options))
    ::setenv("TRITON_CACHE_DIR", (options.scratch + "/triton").c_str(), 1);
  ::setenv("CUDA_CACHE_PATH", (options.scratch + "/cuda").c_str(), 1);
  for (const auto* name : {"WANDB_DIR", "WANDB_DATA_DIR", "WANDB_CACHE_DIR"})  // a program of its own writes there
    ::setenv(name, (options.scratch + "/tmp").c_str(), 1);
  ::setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
  ::setenv("GIT_OPTIONAL_LOCKS", "0", 1);
  return tune::raise_fence(open_folders(options));
}

/// What the fence has stopped, as the last word of the trial.
void tell(const tune::Lookout& lookout, int status) {
  if (status == tune::kForbidden) {
    fmt::print(
        stderr,
        "it was about to write {} by other means than Python, and only what Python writes can be kept apart here\n",
        base::printable(lookout.forbidden(), kLongestShown));
  } else if (status != 0 && !lookout.refused().empty()) {
    fmt::print(stderr, "it was not allowed to write {}\n",
               base::printable(base::join({lookout.refused().begin(), lookout.refused().end()}, ", "), kLongestShown));
  }
}

base::Result<int> run_behind_fence(const tune::SandboxOptions& options, const std::vector<std::string>& command,
                                   std::chrono::milliseconds limit) {
  if (const auto inside = enter_fence(options); !inside) return std::unexpected(inside.error());
  tune::Lookout lookout(open_folders(options), user_caches());
  const auto status = tune::supervise(command, limit, &lookout);
  if (status) tell(lookout, *status);
  return status;
}

base::Result<int> run_in_sandbox(const tune::SandboxOptions& options, const std::vector<std::string>& command,
                                 std::chrono::milliseconds limit) {
  if (const auto inside = tune::enter_sandbox(options); !inside) return std::unexpected(inside.error());
  return tune::supervise(command, limit);
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
  const std::vector<std::string> command(end + 1, arguments.end());
  const auto run = sandbox_is_possible(options) ? run_in_sandbox : run_behind_fence;
  const auto status = run(options, command, std::chrono::milliseconds(*limit));
  return status ? *status : report(status.error(), kNotExamined);
}

}  // namespace fullwatt::cli
