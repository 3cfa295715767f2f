// The program fullwatt-train, which `fullwatt train` executes: the only one that is linked with torch.

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/grid.hpp"
#include "fullwatt/engine/train_output.hpp"

namespace fullwatt::engine {
namespace {

constexpr int kUsage = 2;
constexpr int kFailed = 3;
constexpr int kInterrupted = 130;

std::atomic<bool> stop = false;
std::atomic<std::int64_t> asked_ns = 0;

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);  // allowed in a signal's handler
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

/// The first asks for an end in order, a later one ends at once. Those that launch programs pass on what the terminal
/// has sent already: a second one right after the first is the same.
void interrupt(int signal) {
  constexpr std::int64_t kSame = 500'000'000;
  const auto now = now_ns();
  std::int64_t asked = 0;
  if (asked_ns.compare_exchange_strong(asked, now)) {
    stop = true;
  } else if (now - asked > kSame) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

/// On a stack of its own: oneDNN's kernels use the thread's stack pointer for memory of theirs, and a signal's frame
/// below it would overwrite what others have there.
void listen() {
  static std::array<std::byte, std::size_t{64} << 10U> room;
  const stack_t stack{.ss_sp = room.data(), .ss_flags = 0, .ss_size = room.size()};
  ::sigaltstack(&stack, nullptr);
  struct sigaction action{};
  action.sa_handler = interrupt;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

int report(const base::Error& error, int code) {
  fmt::print(stderr, "fullwatt train: {}\n", error.message);
  if (!error.remedy.empty()) fmt::print(stderr, "  {}\n", error.remedy);
  return code;
}

/// The one that was chosen for the training is the only one that torch sees. Processes that train together have one
/// each.
void show_only(const std::string& gpu, const Config& config, const Place& place) {
  if (gpu.empty() || place.size > 1 || config.hardware.device == "cpu") return;
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  ::setenv("CUDA_VISIBLE_DEVICES", gpu.c_str(), 1);
  fmt::print(stderr, "the only GPU that the training sees is {}\n", base::printable(gpu, 100));
}

int run(const Config& config, const TrainOptions& options) {
  TrainOutput output(config, stderr);
  const auto trained = train(config, options, output.listener());
  if (!trained) {
    fmt::print(stderr, "\n");
    return report(trained.error(), kFailed);
  }
  if (options.place.rank == 0)
    fmt::print(stderr, "\n{} steps in {:.1f} s{}\n", trained->steps, trained->seconds,
               trained->is_complete ? "" : "; stopped, the same command goes on");
  return trained->is_complete ? 0 : kInterrupted;
}

/// Every combination of the listed values, one after the other; the best one first at the end. All are read before the
/// first is trained, and one that fails, as with too high a rate, does not keep the others from it.
int run_grid(const std::string& path, const std::vector<std::string>& overrides,
             const std::vector<std::string>& starting, const Config& config, const TrainOptions& options) {
  const auto trials = trials_of(config);
  std::vector<Config> configs;
  for (const auto& trial : trials) {
    auto all = overrides;
    all.insert(all.end(), trial.overrides.begin(), trial.overrides.end());
    auto one = read_config(path, all, starting);
    if (!one) return report(one.error(), kUsage);
    configs.push_back(*std::move(one));
  }
  const bool tells = options.place.rank == 0;
  std::vector<std::pair<double, std::string>> results;
  std::vector<std::string> failed;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (tells) fmt::print(stderr, "── {}\n", trials[i].name);
    const int code = run(configs[i], options);
    if (code == kInterrupted) return code;
    if (code != 0) failed.push_back(trials[i].name);
    const auto loss = code == 0 ? last_epoch_loss(configs[i].output.folder) : std::nullopt;
    if (loss) results.emplace_back(*loss, trials[i].name);
  }
  std::ranges::sort(results);
  if (tells) {
    fmt::print("{:<12} settings\n", "loss");
    for (const auto& [loss, name] : results) fmt::print("{:<12.6g} {}\n", loss, name);
    for (const auto& name : failed) fmt::print("{:<12} {}\n", "failed", name);
  }
  return results.empty() ? kFailed : 0;
}

}  // namespace

int train_main(int argc, char** argv) {
  CLI::App app("Trains a model in C++ as a configuration says", "fullwatt train");
  app.footer(
      "fullwatt train trains on the GPU that 'fullwatt select' chooses; with --gpu-config on no CPU, and with that "
      "card's values where the configuration says nothing.\n\nExample: fullwatt train examples/lstm.yaml --set "
      "train.batch_size=256");
  app.set_version_flag("--version", "fullwatt-train for PyTorch " FULLWATT_TORCH_VERSION);
  std::string path;
  std::vector<std::string> overrides;
  std::vector<std::string> starting;
  std::string gpu;
  TrainOptions options;
  app.add_option("config", path, "The configuration, in YAML (docs/train.md)")->required();
  app.add_option("--set", overrides, "A setting that is to be otherwise: section.key=value")->allow_extra_args(false);
  app.add_option("--start", starting, "A setting for what the configuration leaves open: section.key=value")
      ->allow_extra_args(false);
  app.add_option("--gpu", gpu, "The GPU to train on by its UUID, where the configuration wants one");
  app.add_option("--initial", options.initial, "First weights, a safetensors file")->check(CLI::ExistingFile);
  app.add_flag("--anew", options.anew, "Begin again, also where there is a checkpoint");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  auto place = place_here([](const char* name) { return std::getenv(name); });
  if (!place) return report(place.error(), kUsage);
  options.place = *place;
  const auto config = read_config(path, overrides, starting);
  if (!config) return report(config.error(), kUsage);
  show_only(gpu, *config, options.place);
  options.stop = &stop;
  listen();
  return config->grid.empty() ? run(*config, options) : run_grid(path, overrides, starting, *config, options);
}

}  // namespace fullwatt::engine

int main(int argc, char** argv) {
  return fullwatt::engine::train_main(argc, argv);
}
