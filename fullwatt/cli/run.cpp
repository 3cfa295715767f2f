#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/cli/agent_paths.hpp"
#include "fullwatt/cli/command.hpp"
#include "fullwatt/cli/examination.hpp"
#include "fullwatt/cli/run_report.hpp"
#include "fullwatt/cli/run_watch.hpp"
#include "fullwatt/doctor/select.hpp"
#include "fullwatt/explain/explain.hpp"
#include "fullwatt/record/run_folder.hpp"
#include "fullwatt/show/run_text.hpp"
#include "fullwatt/show/version.hpp"
#include "fullwatt/tune/plan_file.hpp"

namespace fullwatt::cli {
namespace {

namespace fs = std::filesystem;

struct RunOptions {
  std::vector<std::string> command;
  std::uint64_t steps = 0;
  bool gpu = false;
  bool ceiling = false;
  bool quiet = false;
  bool verbose = false;
  bool no_live = false;
  std::optional<double> price;
  std::string currency;
  std::string plan;  ///< path; empty without one
};

std::string utc_now() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string git(const std::vector<std::string>& arguments, const base::Environment& environment) {
  base::ChildOptions options;
  options.argv = {"git"};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.environment = environment;
  options.limit = std::chrono::milliseconds(2000);
  const auto result = base::run_child(options);
  return result && result->ok() ? std::string(base::trim(result->out)) : std::string();
}

model::RunInfo describe(const RunOptions& options, const std::string& folder, const base::Environment& environment) {
  model::RunInfo info;
  info.id = fs::path(folder).filename().string();
  info.command = options.command;
  info.folder = fs::current_path().string();
  info.version = show::kVersion;
  info.started = utc_now();
  info.git_commit = git({"rev-parse", "--short=12", "HEAD"}, environment);
  info.git_dirty =
      !info.git_commit.empty() && !git({"status", "--porcelain", "--untracked-files=no"}, environment).empty();
  info.price_per_kwh = options.price;
  info.currency = options.currency;
  return info;
}

/// Makes only the GPU that `select` chose visible to the training.
base::Result<std::string> choose_gpu(const base::Result<Examined>& examined, base::Environment& environment) {
  if (!examined) return std::unexpected(examined.error());
  const auto selection = doctor::select_gpu(examined->machine);
  const auto* gpu = selection.selected();
  if (gpu == nullptr) {
    return base::fail(base::Error::Kind::unavailable, "--gpu: no GPU can be trained on: " + selection.reason,
                      "Find out why: fullwatt doctor");
  }
  environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  environment["CUDA_VISIBLE_DEVICES"] = gpu->uuid;
  fmt::print(stderr, "fullwatt: trains on {}: {}\n", base::printable(gpu->device_name, 80),
             base::printable(selection.reason, 300));
  return gpu->uuid;
}

WatchOptions watch_options(const RunOptions& options, const Common& common, const std::string& folder) {
  const auto style = error_style(common);
  WatchOptions watch;
  watch.folder = folder;
  watch.live = !options.no_live && !options.quiet && ::isatty(STDERR_FILENO) == 1;
  watch.columns = style.width;
  watch.ascii = !style.unicode;
  watch.language = style.language;
  return watch;
}

/// A training that stayed on the CPU beside an NVIDIA GPU: why PyTorch did not take it has to be asked of PyTorch
/// itself, with the interpreter that trained.
bool gpu_left_alone(const ExplainedRun& explained) {
  const auto& [run, explanation] = explained;
  const auto known = std::ranges::find(explanation.findings, "model-on-cpu", &model::Finding::id);
  return explanation.steps > 0 && !explanation.has_gpu && known == explanation.findings.end() && run.machine &&
         !run.machine->hardware.nvidia().empty();
}

base::Result<ExplainedRun> explain_with_reasons(const RunOptions& options, const std::string& folder) {
  auto explained = explain_folder(folder);
  if (!explained || !gpu_left_alone(*explained)) return explained;
  if (!options.quiet) fmt::print(stderr, "fullwatt: looks why the GPU was not used\n");
  keep_machine(look_at_machine(explain::interpreter_of(explained->run)), folder);
  return explain_folder(folder);
}

/// The report goes to standard error: standard output is the program's own.
void report_run(const RunOptions& options, const Common& common, const std::string& folder) {
  const auto style = error_style(common);
  keep_sources(folder);
  const auto explained = explain_with_reasons(options, folder);
  if (!explained) {
    report(explained.error());
    return;
  }
  if (const auto written = write_reports(folder, *explained, style.language); !written) report(written.error());
  if (options.quiet) return;
  const auto text = show::run_text(explained->explanation, style, {options.verbose, page_of(folder)});
  std::fwrite(text.data(), 1, text.size(), stderr);
  if (explained->explanation.steps == 0 && (options.steps > 0 || options.ceiling))
    fmt::print(stderr, "fullwatt: no steps of a training were seen, so that {} ended nothing\n",
               options.steps > 0 ? "--steps" : "--ceiling");
}

/// The plan for the agent, in the run folder.
base::Result<void> give_plan(const model::Plan& plan, const std::string& folder, base::Environment& environment) {
  if (plan.fixes.empty()) return {};
  const auto path = (fs::path(folder) / "plan.json").string();
  std::ofstream file(path);
  file << tune::plan_for_agent(plan);
  if (!file.flush()) return base::fail(base::Error::Kind::unavailable, path + " cannot be written");
  environment["FULLWATT_PLAN"] = fs::absolute(path).string();
  tune::set_environment(plan, environment);
  return {};
}

int run_training(const RunOptions& options, const Common& common) {
  const auto plan = options.plan.empty() ? base::Result<model::Plan>() : tune::read_plan(options.plan);
  if (!plan) return report(plan.error());
  auto environment = base::current_environment();
  const auto agent = find_agent(environment);
  if (!agent) return report(agent.error(), kNotExamined);
  const auto folder = record::create_run_folder(record::runs_folder(environment));
  if (!folder) return report(folder.error());

  auto info = describe(options, *folder, environment);
  auto child_environment = with_agent(environment, *agent, *folder);
  if (options.steps > 0) child_environment["FULLWATT_STEPS"] = std::to_string(options.steps);
  if (options.ceiling) child_environment["FULLWATT_CEILING"] = "1";
  if (const auto given = give_plan(*plan, *folder, child_environment); !given) return report(given.error());
  if (options.gpu) {
    const auto machine = look_at_machine();
    const auto uuid = choose_gpu(machine, child_environment);
    if (!uuid) return report(uuid.error(), kNotExamined);
    keep_machine(machine, *folder);
    info.gpu_asked = *uuid;
  }
  if (const auto written = record::write_info(*folder, info); !written) return report(written.error());

  auto training = record::Training::start(options.command, child_environment);
  if (!training) {
    fs::remove_all(*folder);
    return report(training.error());
  }
  std::thread looking;
  if (!options.gpu) looking = std::thread([&] { keep_machine(look_at_machine(), *folder); });
  const auto watched = watch(*training, watch_options(options, common, *folder));
  if (looking.joinable()) looking.join();
  record::Training::restore_signals();

  info.seconds = watched.seconds;
  if (watched.exit.signal != 0) info.signal = watched.exit.signal;
  if (watched.exit.signal == 0) info.exit_code = watched.exit.code;
  info.interrupted = watched.interrupted;
  info.gpus = watched.gpus;
  info.sampler = watched.no_gpu_samples;
  info.hang = watched.hang;
  if (const auto written = record::write_info(*folder, info); !written) report(written.error());
  record::shrink_spools(*folder);
  report_run(options, common, *folder);
  return watched.exit.status();
}

}  // namespace

void add_run(CLI::App& app, const std::vector<std::string>& user_command, const Common& common, int& result) {
  auto* command = app.add_subcommand("run", "Runs a training and shows where each step's time goes");
  command->footer(
      "Example: fullwatt run -- python train.py --epochs 3\n"
      "The exit code is the training's own; its output is left alone, the report goes to standard error.");
  const auto options = std::make_shared<RunOptions>();
  command->add_option("--steps", options->steps, "End the training after this many steps")->check(CLI::PositiveNumber);
  command->add_flag("--gpu", options->gpu, "Train on the GPU that 'fullwatt select' chooses");
  command->add_flag(
      "--ceiling", options->ceiling,
      "Measure what a perfect loader would give: one batch is used again and again, then the training ends");
  command->add_option("--fix", options->plan, "Apply the fixes of a plan, without touching the code");
  command->add_option("--price", options->price, "Price of a kWh, to tell what the run costs")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--currency", options->currency, "Its currency, such as EUR");
  command->add_flag("-q,--quiet", options->quiet, "No live line and no report; 'fullwatt report' shows it later");
  command->add_flag("-v,--verbose", options->verbose, "More of everything in the report");
  command->add_flag("--no-live", options->no_live, "No live line while it runs");
  command->callback([options, &user_command, &common, &result] {
    options->command = user_command;
    if (options->command.empty()) {
      result = report({base::Error::Kind::bad_input, "there is nothing to run",
                       "Give the command as you would type it: fullwatt run -- python train.py"});
      return;
    }
    result = run_training(*options, common);
  });
}

}  // namespace fullwatt::cli
