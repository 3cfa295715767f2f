#include "fullwatt/tune/trial.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/facts.hpp"
#include "fullwatt/explain/steps.hpp"
#include "fullwatt/explain/summary.hpp"
#include "fullwatt/explain/trained_gpu.hpp"
#include "fullwatt/record/run_folder.hpp"
#include "fullwatt/record/sampler.hpp"
#include "fullwatt/tune/cooling.hpp"
#include "fullwatt/tune/plan_file.hpp"
#include "fullwatt/tune/supervise.hpp"

namespace fullwatt::tune {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kWarmUp = 16;  ///< steps until the agent's hooks are settled, and graphs are captured
constexpr std::size_t kTailLines = 3;

nlohmann::json asked_of_agent(const TrialRequest& request) {
  nlohmann::json wanted{{"losses", request.losses}, {"seed_offset", request.seed_offset}};
  if (!request.turns.fixes.empty())
    wanted["turns"] = {
        {"fixes", request.turns.fixes}, {"pairs", request.turns.pairs}, {"seconds", request.turns.seconds}};
  return wanted;
}

/// Everything that makes one trial another one.
nlohmann::json identity_of(const TrialRequest& request) {
  return {{"plan", plan_for_agent(request.plan)},
          {"steps", request.steps},
          {"windows", request.windows},
          {"agent", asked_of_agent(request)}};
}

std::string note_of(const std::string& folder, int number) {
  return fmt::format("{}/{}/trial.json", folder, number);
}

/// What one start has compiled the next need not compile again. A program that compiles by itself keeps to its own
/// cache.
std::string compiled_folder(const TrialSetup& setup) {
  return setup.folder + "/compiled";
}

bool has_fix(const model::Plan& plan, std::string_view id) {
  return std::ranges::find(plan.fixes, id, &model::PlannedFix::id) != plan.fixes.end();
}

base::Environment environment_for(const TrialSetup& setup, const TrialRequest& request, const std::string& run) {
  auto environment = setup.environment(run);
  environment["FULLWATT_STEPS"] = std::to_string(request.steps);
  auto asked = asked_of_agent(request);
  if (asked.contains("turns")) asked["turns"]["most_seconds"] = request.turns.most_seconds;
  environment["FULLWATT_TRIAL"] = asked.dump();
  if (!request.windows) environment["FULLWATT_WINDOWS"] = "off";
  // Experiment loggers write to a service, which no layer of files holds back.
  environment["WANDB_MODE"] = "offline";
  environment["MLFLOW_TRACKING_URI"] = "file:///tmp/fullwatt-trial-mlruns";
  environment["COMET_MODE"] = "offline";
  if (has_fix(request.plan, "compile")) {
    environment["TORCHINDUCTOR_CACHE_DIR"] = compiled_folder(setup);
    environment["TRITON_CACHE_DIR"] = compiled_folder(setup) + "/triton";
  }
  if (!request.plan.fixes.empty()) {
    std::ofstream(run + "/plan.json") << plan_for_agent(request.plan);
    environment["FULLWATT_PLAN"] = run + "/plan.json";
    set_environment(request.plan, environment);
  }
  return environment;
}

/// The end of what the program wrote to standard error.
std::string last_words(const std::string& text) {
  const auto lines = base::lines(base::trim(text));
  std::vector<std::string> tail;
  for (std::size_t i = lines.size() - std::min(lines.size(), kTailLines); i < lines.size(); ++i)
    tail.push_back(base::printable(lines[i], 200));
  return base::join(tail, " / ");
}

std::string failure_of(const base::ChildResult& ended) {
  if (ended.exit_code == kTimedOut || ended.timed_out) return "it was not over in time";
  if (ended.signal != 0) return fmt::format("it was ended by signal {}", ended.signal);
  if (ended.exit_code != 0) return fmt::format("exit code {}: {}", ended.exit_code, last_words(ended.err));
  return {};
}

/// A mean that may be of nothing.
class Mean {
 public:
  void add(double value) {
    sum_ += value;
    ++count_;
  }
  std::optional<double> value() const { return count_ > 0 ? std::optional(sum_ / count_) : std::nullopt; }

 private:
  double sum_ = 0;
  int count_ = 0;
};

/// The process that trained: of several the first rank.
const model::TrainingProcess* trainer_of(const model::Run& run) {
  const auto found = std::ranges::find_if(run.processes, [](const auto& process) {
    return process.role == model::TrainingProcess::Role::trainer && process.step_count > 0;
  });
  return found != run.processes.end() ? &*found : nullptr;
}

/// The sum of a step's losses, of those from the first step on without a gap.
std::vector<double> losses_by_step(const model::TrainingProcess& trainer) {
  std::vector<double> losses;
  for (const auto& loss : trainer.losses) {
    if (loss.step == losses.size() + 1) losses.push_back(0);
    if (loss.step == losses.size() && loss.step > 0) losses.back() += loss.value;
  }
  return losses;
}

std::vector<model::Turn> turns_of(const explain::ProcessFacts& facts) {
  std::vector<model::Turn> turns;
  for (const auto& fact : facts.turns)
    turns.push_back({fact.id, fact.kept.value_or(false), fact.without_ms, fact.with_ms, fact.once_s.value_or(0)});
  return turns;
}

/// The figures of the GPU that was trained on, between two moments.
model::GpuWork work_between(const model::Run& run, const explain::ProcessFacts& facts, std::uint64_t from,
                            std::uint64_t to) {
  const auto gpu = explain::find_trained_gpu(run, facts, {});
  Mean watts;
  Mean utilization;
  model::GpuWork work;
  for (const auto& sample : run.gpu_samples) {
    if (sample.gpu != gpu.run_index || sample.at_ns < from || sample.at_ns > to) continue;
    if (sample.power_w) watts.add(*sample.power_w);
    if (sample.utilization_percent) utilization.add(*sample.utilization_percent);
    if (sample.memory_used_bytes)
      work.memory_bytes = std::max(work.memory_bytes.value_or(0), static_cast<double>(*sample.memory_used_bytes));
  }
  work.watts = watts.value();
  work.utilization_percent = utilization.value();
  return work;
}

void measure(const model::Run& run, const model::TrainingProcess& trainer, model::Trial& trial) {
  const auto steps = explain::find_steps(trainer);
  for (const auto place : steps.plain) {
    if (steps.all[place].number > kWarmUp) trial.step_ms.push_back(steps.all[place].ms());
  }
  trial.samples_per_step = steps.samples;
  trial.losses = losses_by_step(trainer);
  const auto facts = explain::parse_facts(trainer);
  if (steps.known())
    trial.gpu = work_between(run, facts, steps.all[steps.plain.front()].start_ns, steps.all[steps.plain.back()].end_ns);
  for (const auto& sample : run.host_samples)
    trial.host_memory_bytes = std::max(trial.host_memory_bytes, static_cast<double>(sample.training_rss_bytes));
  trial.fixes = explain::fixes_of(facts);
  trial.turns = turns_of(facts);
  for (const auto& fix : facts.fixes) {
    if (fix.once_s) trial.once_s[fix.id] = *fix.once_s;
  }
  if (facts.target) trial.target = {facts.target->torch, facts.target->gpu, facts.target->model, facts.target->script};
  if (trial.step_ms.empty() && trial.turns.empty() && trial.failure.empty()) trial.failure = "too few steps were seen";
}

model::Trial new_trial(const TrialSetup& setup, const TrialRequest& request, int number) {
  model::Trial trial;
  trial.plan = request.plan;
  trial.seed_offset = request.seed_offset;
  trial.folder = fmt::format("{}/{}/run", setup.folder, number);
  return trial;
}

/// What the run folder has to say.
void read_folder(model::Trial& trial) {
  std::vector<std::string> remarks;
  const auto run = record::read_run(trial.folder, remarks);
  const auto* trainer = run ? trainer_of(*run) : nullptr;
  if (trainer != nullptr) {
    measure(*run, *trainer, trial);
  } else if (trial.failure.empty()) {
    trial.failure = "it made no training step";
  }
}

}  // namespace

bool is_out_of_memory(const std::string& failure) {
  return base::contains(failure, "out of memory") || base::contains(failure, "can't allocate memory");
}

model::Trial run_trial(const TrialSetup& setup, const TrialRequest& request, int number) {
  auto trial = new_trial(setup, request, number);
  const auto scratch = fmt::format("{}/{}/sandbox", setup.folder, number);
  std::error_code error;
  fs::remove_all(fs::path(trial.folder).parent_path(), error);  // of one that was cut off
  fs::create_directories(trial.folder, error);
  fs::create_directories(scratch, error);
  fs::create_directories(compiled_folder(setup), error);
  base::ChildOptions options;
  const auto limit = std::to_string(request.limit.count());
  options.argv = {setup.program, "__trial", scratch, limit, trial.folder, compiled_folder(setup), "--"};
  options.argv.insert(options.argv.end(), setup.command.begin(), setup.command.end());
  options.environment = environment_for(setup, request, trial.folder);
  options.limit = request.limit + std::chrono::seconds(10);
  options.is_over = setup.is_over;
  record::Sampler sampler(::getpid(), trial.folder + "/samples.fw");  // the trial's processes descend from this one
  const auto ended = base::run_child(options);
  wait_until_cool({.newest = [&] { return sampler.status().newest_gpu; }, .say = setup.say, .is_over = setup.is_over});
  sampler.stop();
  fs::remove_all(scratch, error);
  if (!ended) {
    trial.failure = ended.error().message;
    return trial;
  }
  trial.seconds = ended->seconds;
  trial.failure = failure_of(*ended);
  record::shrink_spools(trial.folder);
  model::RunInfo info;
  info.command = setup.command;
  info.seconds = trial.seconds;
  info.gpus = sampler.status().gpus;
  info.sampler = sampler.status().reason;
  if (const auto written = record::write_info(trial.folder, info); !written) trial.failure = written.error().message;
  read_folder(trial);
  return trial;
}

void keep_trial(const TrialSetup& setup, const TrialRequest& request, const model::Trial& trial, int number) {
  std::ofstream(note_of(setup.folder, number))
      << nlohmann::json{{"asked", identity_of(request)}, {"seconds", trial.seconds}, {"failure", trial.failure}}.dump();
}

std::optional<model::Trial> kept_trial(const TrialSetup& setup, const TrialRequest& request, int number) {
  std::ifstream file(note_of(setup.folder, number));
  const auto note = nlohmann::json::parse(file, nullptr, false);
  if (note.is_discarded() || !note.is_object() || note.value("asked", nlohmann::json{}) != identity_of(request))
    return std::nullopt;
  auto trial = new_trial(setup, request, number);
  trial.seconds = note.value("seconds", 0.0);
  trial.failure = note.value("failure", std::string{});
  read_folder(trial);
  return trial;
}

int kept_trials(const std::string& folder) {
  int count = 0;
  while (fs::exists(note_of(folder, count + 1))) ++count;
  return count;
}

}  // namespace fullwatt::tune
