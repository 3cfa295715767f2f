#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "fullwatt/base/process.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/cli/command.hpp"
#include "fullwatt/cli/examination.hpp"
#include "fullwatt/doctor/select.hpp"
#include "fullwatt/tune/starting_settings.hpp"

namespace fullwatt::cli {
namespace {

namespace fs = std::filesystem;
using base::Error;
constexpr std::chrono::milliseconds kLongestStart{60000};
constexpr const char* kGpuConfig = "--gpu-config";
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

/// Makes the GPU that `select` chose the only one that is there, and takes it: what the configuration leaves open
/// begins with that card's values. The engine tells what it then found to be so.
base::Result<std::vector<std::string>> with_gpu(std::vector<std::string> arguments) {
  constexpr int kLongest = 10;
  ExaminationOptions options;
  options.no_torch = true;  // the engine has one of its own
  options.timeout_s = kLongest;
  const auto examined = examine(options);
  if (!examined) return std::unexpected(examined.error());
  const auto selection = doctor::select_gpu(examined->machine);
  const auto* const gpu = selection.selected();
  if (gpu == nullptr)
    return base::fail(Error::Kind::unavailable,
                      std::string(kGpuConfig) + ": no GPU can be trained on: " + selection.reason,
                      "Find out why: fullwatt doctor");
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  ::setenv("CUDA_VISIBLE_DEVICES", gpu->uuid.c_str(), 1);
  const auto starting = tune::starting_settings(*gpu, static_cast<int>(std::thread::hardware_concurrency()));
  fmt::print(stderr, "fullwatt: trains on {}: {}\n  begins with {} where the configuration says nothing\n",
             base::printable(gpu->device_name, 80), base::printable(selection.reason, 300), base::join(starting, ", "));
  arguments.insert(arguments.end(), {"--set", "hardware.device=cuda"});
  for (const auto& setting : starting) arguments.insert(arguments.end(), {"--start", setting});
  return arguments;
}

int train(std::vector<std::string> arguments) {
  const auto engine = find_engine();
  if (!engine) return report(engine.error(), kNotExamined);
  if (std::erase(arguments, kGpuConfig) == 0) return execute(*engine, arguments);
  const auto more = with_gpu(std::move(arguments));
  return more ? execute(*engine, *more) : report(more.error(), kNotExamined);
}

}  // namespace

void add_train(CLI::App& app, const std::vector<std::string>& user_command, int& result) {
  auto* command = app.add_subcommand("train", "Trains a model in C++ as a configuration says");
  command->callback([&user_command, &result] { result = train(user_command); });
}

}  // namespace fullwatt::cli
