#include "fullwatt/tune/trial.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "fullwatt/base/files.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/steps.hpp"
#include "fullwatt/explain/summary.hpp"
#include "fullwatt/explain/trained_gpu.hpp"
#include "fullwatt/model/json.hpp"
#include "fullwatt/record/run_folder.hpp"
#include "fullwatt/record/sampler.hpp"
#include "fullwatt/tune/cooling.hpp"
#include "fullwatt/tune/drawn_watts.hpp"
#include "fullwatt/tune/plan_file.hpp"
#include "fullwatt/tune/program_files.hpp"
#include "fullwatt/tune/supervise.hpp"

namespace fullwatt::tune {
namespace {

namespace fs = std::filesystem;
constexpr double kLengthsSeconds = 3;
constexpr std::size_t kTailLines = 3;
constexpr std::size_t kTailLetters = 600;

/// Experiment loggers write to a service, which no layer of files holds back; python/fullwatt/loggers.py has the rest.
constexpr std::pair<const char*, const char*> kOffline[] = {
    {"WANDB_MODE", "offline"},    {"MLFLOW_TRACKING_URI", "file:///tmp/fullwatt-trial-mlruns"},
    {"COMET_START_ONLINE", "0"},  {"COMET_MODE", "OFFLINE"},  // of older versions
    {"NEPTUNE_MODE", "offline"},  {"SWANLAB_MODE", "offline"},
    {"CLEARML_OFFLINE_MODE", "1"}};

nlohmann::json asked_of_agent(const TrialRequest& request) {
  nlohmann::json wanted{{"losses", request.losses}, {"seed_offset", request.seed_offset}};
  if (!request.turns.fixes.empty())
    wanted["turns"] = {
        {"fixes", request.turns.fixes}, {"pairs", request.turns.pairs}, {"seconds", request.turns.seconds}};
  if (!request.tries.empty()) wanted["tries"] = request.tries;
  if (request.lengths) wanted["lengths"] = kLengthsSeconds;
  if (request.longest && !request.longest->longest.empty())
    wanted["longest"] = {{"indices", request.longest->longest}, {"of", request.longest->of}};
  return wanted;
}

/// Everything that makes one trial another one.
nlohmann::json identity_of(const TrialRequest& request) {
  return {{"plan", plan_for_agent(request.plan)},
          {"steps", request.steps},
          {"windows", request.windows},
          {"ceiling", request.ceiling},
          {"agent", asked_of_agent(request)}};
}

std::string note_of(const std::string& folder, int number) {
  return fmt::format("{}/{}/trial.json", folder, number);
}

/// An empty object where there is none.
nlohmann::json read_note(const std::string& folder, int number) {
  std::ifstream file(note_of(folder, number));
  auto note = nlohmann::json::parse(file, nullptr, false);
  return note.is_object() ? note : nlohmann::json::object();
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
  if (request.enough.count() > 0) environment["FULLWATT_ENOUGH_SECONDS"] = std::to_string(request.enough.count());
  auto asked = asked_of_agent(request);
  if (asked.contains("turns")) asked["turns"]["most_seconds"] = request.turns.most_seconds;
  environment["FULLWATT_TRIAL"] = asked.dump();
  if (!request.windows) environment["FULLWATT_WINDOWS"] = "off";
  if (request.ceiling) environment["FULLWATT_CEILING"] = "1";
  for (const auto& [name, value] : kOffline) environment[name] = value;
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
std::string last_words(const std::string& text, std::size_t count = kTailLines) {
  const auto lines = base::lines(base::trim(text));
  std::vector<std::string> tail;
  for (std::size_t i = lines.size() - std::min(lines.size(), count); i < lines.size(); ++i)
    tail.push_back(base::printable(lines[i], kTailLetters / count));
  return base::join(tail, " / ");
}

std::string failure_of(const base::ChildResult& ended) {
  if (ended.exit_code == kTimedOut || ended.timed_out) return "it was not over in time";
  if (ended.exit_code == kForbidden) return last_words(ended.err, 1);
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

std::vector<Stretch> stretches(const std::vector<double>& ends) {
  std::vector<Stretch> found;
  for (std::size_t i = 0; i + 1 < ends.size(); i += 2) found.push_back({ends[i], ends[i + 1]});
  return found;
}

std::vector<model::Turn> turns_of(const model::Run& run, const explain::ProcessFacts& facts) {
  std::vector<model::Turn> turns;
  const auto gpu = explain::find_trained_gpu(run, facts, {}).run_index;
  for (const auto& fact : facts.turns) {
    model::Turn turn{.id = fact.id,
                     .kept = fact.kept.value_or(false),
                     .without_ms = fact.without_ms,
                     .with_ms = fact.with_ms,
                     .once_s = fact.once_s.value_or(0)};
    if (gpu) turn.watts = turn_watts(run, *gpu, stretches(fact.without_ns), stretches(fact.with_ns));
    turns.push_back(std::move(turn));
  }
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
  if (gpu.run_index) {
    const Stretch stretch{static_cast<double>(from), static_cast<double>(to)};
    if (const auto drawn = watts_over(run, *gpu.run_index, stretch)) work.watts = drawn;
  }
  work.utilization_percent = utilization.value();
  return work;
}

std::optional<std::uint64_t> card_bytes(const explain::ProcessFacts& facts) {
  if (facts.memory->card_bytes) return facts.memory->card_bytes;
  for (const auto& gpu : facts.gpus) {
    if (std::to_string(gpu.index) == facts.memory->device) return gpu.memory_bytes;
  }
  return std::nullopt;
}

std::optional<model::SampleLengths> lengths_of(const explain::ProcessFacts& facts) {
  if (!facts.lengths) return std::nullopt;
  model::SampleLengths lengths{facts.lengths->varies, facts.lengths->read, facts.lengths->of, {}};
  for (const auto index : facts.lengths->longest) lengths.longest.push_back(static_cast<std::uint64_t>(index));
  return lengths;
}

void measure(const model::Run& run, const model::TrainingProcess& trainer, model::Trial& trial) {
  const auto steps = explain::find_steps(trainer);
  for (const auto place : steps.plain) trial.step_ms.push_back(steps.all[place].ms());
  trial.samples_per_step = steps.samples;
  trial.losses = losses_by_step(trainer);
  const auto facts = explain::parse_facts(trainer);
  if (steps.known())
    trial.gpu = work_between(run, facts, steps.all[steps.plain.front()].start_ns, steps.all[steps.plain.back()].end_ns);
  for (const auto& sample : run.host_samples)
    trial.host_memory_bytes = std::max(trial.host_memory_bytes, static_cast<double>(sample.training_rss_bytes));
  trial.memory = card_memory(facts);
  trial.lengths = lengths_of(facts);
  trial.fixes = explain::fixes_of(facts);
  trial.turns = turns_of(run, facts);
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
    trial.failure = "it made no training step; behind -- belongs the command that trains";
  }
}

}  // namespace

std::optional<model::CardMemory> card_memory(const explain::ProcessFacts& facts) {
  if (!facts.memory || !card_bytes(facts)) return std::nullopt;
  const auto& told = *facts.memory;
  const auto card = *card_bytes(facts);
  const auto left = card - std::min(card, told.beside_bytes.value_or(0));
  return model::CardMemory{
      .training_bytes = static_cast<double>(told.training_peak_bytes.value_or(told.peak_allocated_bytes)),
      .peak_bytes = static_cast<double>(told.peak_allocated_bytes),
      .held_bytes = static_cast<double>(told.peak_reserved_bytes),
      .limit_bytes = static_cast<double>(std::min(left, told.allowed_bytes.value_or(card))),
      .ran_out = told.oom > 0};
}

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
  record::Sampler sampler(::getpid(), trial.folder + "/samples.fw",  // the trial's processes descend from this one
                          record::Sampler::Detail::power);
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
  info.folder = fs::current_path().string();
  info.seconds = trial.seconds;
  info.gpus = sampler.status().gpus;
  info.sampler = sampler.status().reason;
  if (const auto written = record::write_info(trial.folder, info); !written) trial.failure = written.error().message;
  read_folder(trial);
  return trial;
}

void keep_trial(const TrialSetup& setup, const TrialRequest& request, const model::Trial& trial, int number) {
  const model::Json note = {{"asked", identity_of(request)},
                            {"seconds", trial.seconds},
                            {"failure", trial.failure},
                            {"files", program_files(setup.command, trial.folder)}};
  // Without it a tuning that goes on measures this once more.
  static_cast<void>(base::write_whole(note_of(setup.folder, number), model::dump(note)));
}

std::optional<model::Trial> kept_trial(const TrialSetup& setup, const TrialRequest& request, int number) {
  const auto note = read_note(setup.folder, number);
  if (note.value("asked", nlohmann::json{}) != identity_of(request)) return std::nullopt;
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

std::string changed_since(const std::string& folder) {
  for (int number = kept_trials(folder); number > 0; --number) {
    if (auto path = changed_file(read_note(folder, number).value("files", nlohmann::json{})); !path.empty())
      return path;
  }
  return {};
}

}  // namespace fullwatt::tune
