#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <tuple>

#include "catalog/fixes.hpp"
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/cli/agent_paths.hpp"
#include "fullwatt/cli/command.hpp"
#include "fullwatt/cli/run_report.hpp"
#include "fullwatt/explain/facts.hpp"
#include "fullwatt/show/tune_json.hpp"
#include "fullwatt/show/tune_text.hpp"
#include "fullwatt/tune/advice.hpp"
#include "fullwatt/tune/candidates.hpp"
#include "fullwatt/tune/plan_file.hpp"
#include "fullwatt/tune/proof.hpp"
#include "fullwatt/tune/python_source.hpp"
#include "fullwatt/tune/search.hpp"
#include "fullwatt/tune/source_patch.hpp"
#include "fullwatt/tune/trial.hpp"

namespace fullwatt::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::uint64_t kFirstSteps = 40;  ///< of the first start, which tells how long steps are
constexpr double kMeasuredMs = 4000;       ///< of steps in a trial
constexpr double kExplainedMs = 12000;     ///< of steps in the start that is explained
constexpr std::uint64_t kMostSteps = 2000;
constexpr milliseconds kFirstLimit{120000};
constexpr milliseconds kLongerLimit{60000};  ///< for windows, or for compiling
constexpr int kMostStarts = 12;              ///< to find the plan
constexpr double kTurnMs = 250;              ///< half of a pair
constexpr std::uint64_t kLeastTurn = 4;
constexpr std::uint64_t kMostTurn = 50;
constexpr std::uint64_t kTurnMargin = 5;  ///< steps beside those that are measured
constexpr int kPairs = 5;
constexpr int kFewPairs = 3;
constexpr double kLongStepMs = 100;

volatile std::sig_atomic_t is_interrupted = 0;

/// The first Ctrl-C asks for the best so far; the second ends the program.
void interrupt(int signal) {
  is_interrupted = 1;
  std::signal(signal, SIG_DFL);
}

struct TuneOptions {
  std::vector<std::string> command;
  std::string output = "fullwatt-plan.yaml";
  int seeds = 5;
  double minutes = 5;
  bool exact = false;
  bool json = false;
  bool write = false;
  std::vector<std::string> skip;
};

/// A folder of our own that goes with everything in it.
class Workplace {
 public:
  Workplace() {
    auto name = (fs::temp_directory_path() / "fullwatt-tune-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  ~Workplace() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

int usable_cpus() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

std::uint64_t free_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (std::uint64_t kibibytes = 0; file >> name >> kibibytes; file.ignore(64, '\n')) {
    if (name == "MemAvailable:") return kibibytes << 10U;
  }
  return 0;
}

std::optional<std::string> read_source(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return file ? std::optional(text.str()) : std::nullopt;
}

/// The first file of the command that looks like a program in Python.
std::string main_script(const std::vector<std::string>& command) {
  const auto found = std::ranges::find_if(
      command, [](const auto& word) { return word.ends_with(".py") && fs::is_regular_file(word); });
  return found != command.end() ? fs::absolute(*found).lexically_normal().string() : std::string();
}

/// One session of tuning: everything that starts the program.
class Tuner {
 public:
  Tuner(const TuneOptions& options, const AgentPaths& agent, const show::Style& style)
      : options_(options), style_(style), started_(Clock::now()) {
    setup_.program = base::own_executable();
    setup_.command = options.command;
    setup_.folder = work_.path();
    setup_.environment = [agent, environment = base::current_environment()](const std::string& folder) {
      return with_agent(environment, agent, folder);
    };
  }

  /// The plan in the user's own source.
  tune::PatchedSource in_source(const model::Plan& plan) const {
    return tune::patch_source(plan, plain_facts_, main_script(options_.command), read_source);
  }

  model::Tuning tune() {
    model::Tuning tuning;
    const auto first = start({.steps = kFirstSteps, .limit = kFirstLimit});
    if (!first.failure.empty()) {
      tuning.failure = first.failure;
      return tuning;
    }
    learn(first);
    tuning =
        tune::search({.look = [&](const auto& plan) { return look(plan); },
                      .measure = [&](const auto& plan) { return measure(plan); },
                      .in_turns = [&](const auto& plan, const auto& fixes) { return in_turns(plan, fixes); }},
                     {.starts = kMostStarts - number_,
                      .is_over = [&] { return is_interrupted != 0 || minutes() > options_.minutes; }},
                     {.worth_it = [&](const auto& fix) { fmt::print(stderr, "{}", show::candidate_line(fix, style_)); },
                      .tried = [&](const auto& fix) { fmt::print(stderr, "{}", show::tried_line(fix, style_)); }});
    tuning.plan.made_for = first.target;
    tuning.advice = advice_;
    if (tuning.failure.empty() && !tuning.plan.fixes.empty() && is_interrupted == 0) prove(tuning);
    tuning.interrupted = is_interrupted != 0;
    return tuning;
  }

 private:
  model::Trial start(const tune::TrialRequest& request) {
    auto trial = tune::run_trial(setup_, request, ++number_);
    last_seconds_ = trial.seconds;
    return trial;
  }

  double minutes() const { return std::chrono::duration<double>(Clock::now() - started_).count() / 60; }
  static void say(const std::string& text) { fmt::print(stderr, "fullwatt: {}\n", text); }

  void learn(const model::Trial& first) {
    double sum = 0;
    for (const auto ms : first.step_ms) sum += ms;
    step_ms_ = std::max(0.01, sum / static_cast<double>(first.step_ms.size()));
    steps_ = steps_for(kMeasuredMs);
    limit_ = milliseconds(static_cast<std::int64_t>(4 * (1000 * first.seconds + kMeasuredMs) + 60000));
  }
  std::uint64_t steps_for(double ms) const {
    return std::clamp(static_cast<std::uint64_t>(ms / step_ms_), kFirstSteps, kMostSteps);
  }

  /// Explains the program with a plan and asks which fixes make sense then.
  tune::Look look(const model::Plan& plan) {
    say(plan.fixes.empty() ? "looks where the time goes" : "looks again, with what was kept");
    tune::Look found;
    found.trial =
        start({.plan = plan, .steps = steps_for(kExplainedMs), .windows = true, .limit = limit_ + kLongerLimit});
    const auto explained = explain_folder(found.trial.folder);
    if (!explained || explained->run.processes.empty()) return found;
    say(fmt::format("a step takes {:.3g} ms", explained->explanation.step_ms.mean));
    const auto facts = explain::parse_facts(explained->run.processes.front());
    if (plan.fixes.empty()) plain_facts_ = facts;
    advice_ = tune::advice(explained->explanation);
    found.candidates = tune::candidates({explained->explanation, facts, usable_cpus(), free_memory()});
    std::erase_if(found.candidates, [&](const auto& candidate) {
      return is_unwanted(candidate.fix.id) || is_settled(plan, candidate.fix.id);
    });
    return found;
  }

  model::Trial measure(const model::Plan& plan) { return start({.plan = plan, .steps = steps_, .limit = limit_}); }

  /// Short steps take part in larger groups; where they are long, fewer pairs must do.
  model::Trial in_turns(model::Plan plan, const std::vector<model::PlannedFix>& fixes) {
    tune::InTurns turns{.pairs = step_ms_ > kLongStepMs ? kFewPairs : kPairs,
                        .steps = std::clamp(static_cast<std::uint64_t>(kTurnMs / step_ms_), kLeastTurn, kMostTurn)};
    for (const auto& fix : fixes) {
      turns.fixes.push_back(fix.id);
      plan.fixes.push_back(fix);
    }
    const auto steps = fixes.size() * static_cast<std::uint64_t>(2 * turns.pairs) * (turns.steps + kTurnMargin);
    const milliseconds longest(static_cast<std::int64_t>(2 * static_cast<double>(steps) * step_ms_));
    return start(
        {.plan = plan, .steps = 2 * steps + kFirstSteps, .turns = turns, .limit = limit_ + kLongerLimit + longest});
  }

  /// Whether the plan has the fix, or one that it cannot stand beside.
  static bool is_settled(const model::Plan& plan, const std::string& id) {
    return std::ranges::any_of(
        plan.fixes, [&](const auto& fix) { return fix.id == id || catalog::exclude_each_other(fix.id, id); });
  }

  bool is_unwanted(const std::string& id) const {
    const auto* fix = catalog::find_fix(id);
    return std::ranges::find(options_.skip, id) != options_.skip.end() ||
           (options_.exact && fix->kind != catalog::FixClass::exact);
  }

  /// Pairs with and without the plan, each pair with a seed of its own, in turning order.
  void prove(model::Tuning& tuning) {
    say(fmt::format("proves the plan: {} pairs of starts, about {:.0f} s in all", options_.seeds,
                    2 * options_.seeds * last_seconds_));
    std::vector<tune::Pair> pairs;
    for (int seed = 0; seed < options_.seeds && is_interrupted == 0; ++seed) {
      const auto run = [&](const model::Plan& plan) {
        return start({.plan = plan, .steps = steps_, .seed_offset = seed, .losses = true, .limit = limit_});
      };
      tune::Pair pair;
      if (seed % 2 == 0) pair.first = run({});
      pair.second = run(tuning.plan);
      if (seed % 2 == 1) pair.first = run({});
      pairs.push_back(std::move(pair));
    }
    tuning.speed = tune::prove_speed(pairs);
    tuning.loss = tune::prove_losses(pairs);
    std::tie(tuning.gpu_before, tuning.gpu_after) = tune::gpu_work(pairs);
  }

  const TuneOptions& options_;
  const show::Style& style_;
  Workplace work_;
  tune::TrialSetup setup_;
  Clock::time_point started_;
  std::vector<model::Advice> advice_;  ///< from the newest look
  explain::ProcessFacts plain_facts_;  ///< of the program without any fix
  int number_ = 0;
  double last_seconds_ = 0;
  double step_ms_ = 0;
  std::uint64_t steps_ = 0;
  milliseconds limit_{0};
};

/// The originals stay beside the files.
int write_source(const tune::PatchedSource& patched) {
  if (patched.files.empty()) fmt::print(stderr, "fullwatt: none of these fixes can be written into the source\n");
  for (const auto& patch : patched.files) {
    const auto backup = tune::write_patch(patch);
    if (!backup) return report(backup.error());
    fmt::print(stderr, "fullwatt: {} is changed; the original is {}\n", patch.file, *backup);
  }
  return kOk;
}

int run_tune(const TuneOptions& options, const Common& common) {
  const auto agent = find_agent(base::current_environment());
  if (!agent) return report(agent.error(), kNotExamined);
  const auto style = error_style(common);
  std::signal(SIGINT, interrupt);
  Tuner tuner(options, *agent, style);
  auto tuning = tuner.tune();
  const auto patched = tuner.in_source(tuning.plan);
  for (const auto& patch : patched.files)
    tuning.source.push_back({patch.file, tune::unified_diff(patch.file, patch.before, patch.after)});
  tuning.in_source = patched.written;
  print(options.json ? model::dump(show::tune_json(tuning), 2) + "\n" : show::tune_text(tuning, output_style(common)));
  if (!tuning.failure.empty()) return kNotExamined;
  if (!tuning.is_proved() && (!tuning.interrupted || tuning.plan.fixes.empty())) return kOk;
  std::ofstream file(options.output);
  auto evidence = show::evidence(tuning);
  evidence.insert(evidence.begin(), "made by: fullwatt tune -- " + base::join(options.command, " "));
  file << tune::plan_to_yaml(tuning.plan, evidence);
  if (!file.flush())
    return report(
        {base::Error::Kind::unavailable, options.output + " cannot be written", "Give another path with --output."});
  fmt::print(stderr, "fullwatt run --fix {} -- {}\n", options.output, base::join(options.command, " "));
  return options.write && tuning.is_proved() ? write_source(patched) : kOk;
}

}  // namespace

void add_tune(CLI::App& app, const std::vector<std::string>& user_command, const Common& common, int& result) {
  auto* command = app.add_subcommand("tune", "Tries fixes on a training, keeps those that pay, and proves it");
  command->footer(
      "Example: fullwatt tune -- python train.py --epochs 3\n"
      "The program is started several times for some steps each. What it writes meanwhile is thrown away.");
  const auto options = std::make_shared<TuneOptions>();
  command->add_option("--output", options->output, "Where the plan goes")->capture_default_str();
  command->add_option("--seeds", options->seeds, "Pairs of starts of the proof")
      ->check(CLI::Range(2, 50))
      ->capture_default_str();
  command->add_option("--minutes", options->minutes, "Time for finding the plan")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", options->json, "Machine-readable answer (docs/tune.schema.json)");
  command->add_flag("--write", options->write, "Change the program's own source, too; originals are kept");
  command->add_flag("--exact", options->exact, "Only fixes that leave the results as they are");
  command->add_option("--skip", options->skip, "Fixes that are not wanted, such as compile");
  command->callback([options, &user_command, &common, &result] {
    options->command = user_command;
    if (options->command.empty()) {
      result = report({base::Error::Kind::bad_input, "there is nothing to tune",
                       "Give the command as you would type it: fullwatt tune -- python train.py"});
      return;
    }
    for (const auto& id : options->skip) {
      if (catalog::find_fix(id) != nullptr) continue;
      const auto near = catalog::nearest_fix(id);
      result =
          report({base::Error::Kind::bad_input, fmt::format("there is no fix '{}'", base::printable(id, 60)),
                  near.empty() ? "List them with: fullwatt explain fixes" : fmt::format("Did you mean '{}'?", near)});
      return;
    }
    result = run_tune(*options, common);
  });
}

}  // namespace fullwatt::cli
