#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "fullwatt/base/process.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/cli/command.hpp"

namespace fullwatt::cli {
namespace {

namespace fs = std::filesystem;
using base::Error;
constexpr std::chrono::milliseconds kLongestStart{60000};
constexpr const char* kBuildIt = "Build it for the PyTorch that is installed: ./dev build release";

/// The engine is a program of its own, so that all other commands work without torch, or with another one.
base::Result<std::string> find_engine() {
  auto path = (fs::path(base::own_executable()).parent_path() / "fullwatt-train").string();
  if (!fs::exists(path))
    return base::fail(Error::Kind::not_found, path + " is not there: this fullwatt was built without PyTorch",
                      kBuildIt);
  const auto started = base::run_child(
      {.argv = {path, "--version"}, .environment = base::current_environment(), .limit = kLongestStart});
  if (!started) return std::unexpected(started.error());
  if (!started->ok())
    return base::fail(Error::Kind::unavailable,
                      "fullwatt-train does not start: " + base::printable(base::trim(started->err), 300), kBuildIt);
  return path;
}

int execute(const std::string& path, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(path.c_str(), argv.data());
  return report({Error::Kind::unavailable, path + ": " + std::strerror(errno), kBuildIt}, kNotExamined);
}

}  // namespace

void add_train(CLI::App& app, const std::vector<std::string>& user_command, int& result) {
  auto* command = app.add_subcommand("train", "Trains a model in C++ as a configuration says");
  command->callback([&user_command, &result] {
    const auto engine = find_engine();
    result = engine ? execute(*engine, user_command) : report(engine.error(), kNotExamined);
  });
}

}  // namespace fullwatt::cli
