#include <algorithm>
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

using Arguments = std::vector<std::string>;

base::Result<model::Selection> select() {
  constexpr int kLongest = 10;
  ExaminationOptions options;
  options.no_torch = true;  // the engine has one of its own
  options.timeout_s = kLongest;
  const auto examined = examine(options);
  if (!examined) return std::unexpected(examined.error());
  return doctor::select_gpu(examined->machine);
}

/// Takes the GPU that `select` chose: what the configuration leaves open begins with that card's values. The engine
/// tells what it then found to be so.
base::Result<Arguments> with_gpu_config(Arguments arguments) {
  const auto selection = select();
  if (!selection) return std::unexpected(selection.error());
  const auto* const gpu = selection->selected();
  if (gpu == nullptr)
    return base::fail(Error::Kind::unavailable,
                      std::string(kGpuConfig) + ": no GPU can be trained on: " + selection->reason,
                      "Find out why: fullwatt doctor");
  const auto starting = tune::starting_settings(*gpu, static_cast<int>(std::thread::hardware_concurrency()));
  fmt::print(stderr, "fullwatt: trains on {}: {}\n  begins with {} where the configuration says nothing\n",
             base::printable(gpu->device_name, 80), base::printable(selection->reason, 300),
             base::join(starting, ", "));
  arguments.insert(arguments.end(), {"--set", "hardware.device=cuda", "--gpu", gpu->uuid});
  for (const auto& setting : starting) arguments.insert(arguments.end(), {"--start", setting});
  return arguments;
}

/// Nothing is to be chosen where the user names one GPU, or the command only tells of itself.
bool has_choice(const Arguments& arguments) {
  const auto* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const auto tells = [](const std::string& word) { return word == "--help" || word == "-h" || word == "--version"; };
  return (visible == nullptr || std::strchr(visible, ',') != nullptr) && !arguments.empty() &&
         std::ranges::none_of(arguments, tells);
}

/// Of several GPUs the one that `select` chose; whether one is wanted, the configuration says.
Arguments with_best_gpu(Arguments arguments) {
  if (!has_choice(arguments)) return arguments;
  const auto selection = select();
  if (!selection || std::ranges::count_if(selection->gpus, &model::GpuStatus::is_available) < 2) return arguments;
  const auto* const gpu = selection->selected();
  fmt::print(stderr, "fullwatt: where the training wants a GPU, it gets {}: {}\n",
             base::printable(gpu->device_name, 80), base::printable(selection->reason, 300));
  arguments.insert(arguments.end(), {"--gpu", gpu->uuid});
  return arguments;
}

int train(Arguments arguments) {
  const auto engine = find_engine();
  if (!engine) return report(engine.error(), kNotExamined);
  if (std::erase(arguments, kGpuConfig) == 0) return execute(*engine, with_best_gpu(std::move(arguments)));
  const auto more = with_gpu_config(std::move(arguments));
  return more ? execute(*engine, *more) : report(more.error(), kNotExamined);
}

}  // namespace

void add_train(CLI::App& app, const std::vector<std::string>& user_command, int& result) {
  auto* command = app.add_subcommand("train", "Trains a model in C++ as a configuration says");
  command->callback([&user_command, &result] { result = train(user_command); });
}

}  // namespace fullwatt::cli
