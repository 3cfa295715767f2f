// The program fullwatt-train, which `fullwatt train` executes: the only one that is linked with torch.

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "fullwatt/engine/train.hpp"

namespace fullwatt::engine {
namespace {

constexpr int kUsage = 2;
constexpr int kFailed = 3;
constexpr int kInterrupted = 130;

std::atomic<bool> stop = false;

/// The first asks for an end in order, the second ends at once.
void interrupt(int signal) {
  stop = true;
  std::signal(signal, SIG_DFL);
}

int report(const base::Error& error, int code) {
  fmt::print(stderr, "fullwatt train: {}\n", error.message);
  if (!error.remedy.empty()) fmt::print(stderr, "  {}\n", error.remedy);
  return code;
}

void tell_start(const Config& config, const Start& start) {
  for (const auto& [name, value] : settings_of(config)) fmt::print(stderr, "  {:<36} {}\n", name, value);
  fmt::print(stderr,
             "in force: {}, {}, {} parameters, {} samples, {} steps an epoch of {} samples, {} loader threads\n",
             start.device, start.precision, start.parameters, start.samples, start.steps_per_epoch,
             start.effective_batch, start.workers);
  if (!start.resumed.empty()) fmt::print(stderr, "goes on from {} (--anew begins again)\n", start.resumed);
}

int run(const Config& config, const TrainOptions& options) {
  std::ofstream metrics;
  const TrainListener listener{
      .started =
          [&](const Start& start) {
            tell_start(config, start);
            const auto mode = start.resumed.empty() ? std::ios::trunc : std::ios::app;
            metrics.open(std::filesystem::path(config.output.folder) / "metrics.jsonl", std::ios::out | mode);
          },
      .progressed =
          [&](const Progress& now) {
            fmt::print(stderr, "epoch {} step {}: loss {:.6g}, {:.0f} samples/s\n", now.epoch, now.step, now.loss,
                       now.samples_per_second);
            metrics << fmt::format(R"({{"epoch":{},"step":{},"loss":{:.17g},"samples_per_second":{:.6g}}})", now.epoch,
                                   now.step, now.loss, now.samples_per_second)
                    << std::endl;
          },
      .saved = [](const std::string& path) { fmt::print(stderr, "saved {}\n", path); }};
  const auto trained = train(config, options, listener);
  if (!trained) return report(trained.error(), kFailed);
  fmt::print(stderr, "{} steps in {:.1f} s{}\n", trained->steps, trained->seconds,
             trained->is_complete ? "" : "; stopped, the same command goes on");
  return trained->is_complete ? 0 : kInterrupted;
}

}  // namespace

int train_main(int argc, char** argv) {
  CLI::App app("Trains a model in C++ as a configuration says", "fullwatt train");
  app.footer("Example: fullwatt train examples/lstm.yaml --set train.batch_size=256");
  app.set_version_flag("--version", "fullwatt-train for PyTorch " FULLWATT_TORCH_VERSION);
  std::string path;
  std::vector<std::string> overrides;
  TrainOptions options;
  app.add_option("config", path, "The configuration, in YAML (docs/train.md)")->required();
  app.add_option("--set", overrides, "A setting that is to be otherwise: section.key=value")->allow_extra_args(false);
  app.add_option("--initial", options.initial, "First weights, a safetensors file")->check(CLI::ExistingFile);
  app.add_flag("--anew", options.anew, "Begin again, also where there is a checkpoint");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  const auto config = read_config(path, overrides);
  if (!config) return report(config.error(), kUsage);
  options.stop = &stop;
  std::signal(SIGINT, interrupt);
  std::signal(SIGTERM, interrupt);
  return run(*config, options);
}

}  // namespace fullwatt::engine

int main(int argc, char** argv) {
  return fullwatt::engine::train_main(argc, argv);
}
