#include "fullwatt/cli/tuner.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <tuple>

#include "catalog/fixes.hpp"
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "fullwatt/cli/run_report.hpp"
#include "fullwatt/explain/machine_facts.hpp"
#include "fullwatt/explain/trained_gpu.hpp"
#include "fullwatt/show/tune_text.hpp"
#include "fullwatt/tune/advice.hpp"
#include "fullwatt/tune/candidates.hpp"
#include "fullwatt/tune/cpu_bfloat16.hpp"
#include "fullwatt/tune/near_cpus.hpp"
#include "fullwatt/tune/remaining.hpp"

namespace fullwatt::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr double kMeasuredMs = 4000;    ///< of steps in a trial
constexpr double kExplainedMs = 12000;  ///< of steps in the start that is explained
constexpr std::uint64_t kMostSteps = 2000;
constexpr std::uint64_t kFewestSteps = 16;           ///< of long ones: those at the beginning are not counted
constexpr std::uint64_t kFewestExplainedSteps = 28;  ///< windows need some, too
constexpr double kTurnMargin = 8;                    ///< steps of half a pair beside those that time asks for
constexpr double kMostTurn = 40;                     ///< of these, as the agent has it
constexpr int kUsualPairs = 6;                       ///< until they tell
constexpr int kFewPairs = 5;
constexpr double kShortTurn = 0.08;  ///< seconds of half a pair
constexpr double kLongStepMs = 100;
constexpr double kLeastStepMs = 0.01;

volatile std::sig_atomic_t interrupts = 0;

void interrupt(int signal) {
  constexpr std::string_view kWord = "\nfullwatt: stops, and gives the best so far\n";
  interrupts = 1;
  std::signal(signal, SIG_DFL);
  if (::write(STDERR_FILENO, kWord.data(), kWord.size()) < 0) return;  // nobody listens
}

std::set<int> usable_cpus() {
  cpu_set_t set;
  std::set<int> cpus;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.insert(cpu);
  }
  return cpus;
}

/// Those of the CPUs that stand beside the GPU that was trained on, where not all do.
std::string near_trained_gpu(base::Files& files, const model::Run& run, const explain::ProcessFacts& facts,
                             const std::set<int>& cpus) {
  const auto index = explain::find_trained_gpu(run, facts, {}).run_index;
  return index ? tune::near_cpus(files, run.info.gpus.at(static_cast<std::size_t>(*index)).bdf, cpus) : std::string();
}

/// The first file of the command that looks like a program in Python.
std::string main_script(const std::vector<std::string>& command) {
  const auto found = std::ranges::find_if(
      command, [](const auto& word) { return word.ends_with(".py") && fs::is_regular_file(word); });
  return found != command.end() ? fs::absolute(*found).lexically_normal().string() : std::string();
}

std::string names_of(const model::Plan& plan) {
  std::vector<std::string> names;
  for (const auto& fix : plan.fixes) names.push_back(fix.id);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Whether the plan has the fix, or one that it cannot stand beside.
bool is_settled(const model::Plan& plan, const std::string& id) {
  return std::ranges::any_of(plan.fixes,
                             [&](const auto& fix) { return fix.id == id || catalog::exclude_each_other(fix.id, id); });
}

/// Takes the fixes of a class out of the plan, but for those that are needed; whether there were any.
bool drop(model::Tuning& tuning, catalog::FixClass kind, const std::string& reason) {
  const auto is_one = [&](const std::string& id) {
    return catalog::find_fix(id)->kind == kind &&
           std::ranges::find(tuning.needed.fixes, id, &model::PlannedFix::id) == tuning.needed.fixes.end();
  };
  for (auto& tried : tuning.tried) {
    if (!tried.kept || !is_one(tried.fix.id)) continue;
    tried.kept = false;
    tried.reason = reason;
  }
  return std::erase_if(tuning.plan.fixes, [&](const auto& fix) { return is_one(fix.id); }) > 0;
}

}  // namespace

bool is_interrupted() {
  return interrupts != 0;
}

void listen_to_interrupts() {
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, interrupt);
}

std::uint64_t free_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (std::uint64_t kibibytes = 0; file >> name >> kibibytes; file.ignore(64, '\n')) {
    if (name == "MemAvailable:") return kibibytes << 10U;
  }
  return 0;
}

Tuner::Tuner(const TuneOptions& options, const AgentPaths& agent, const show::Style& style, const std::string& folder)
    : options_(options), style_(style), started_(Clock::now()) {
  setup_.program = base::own_executable();
  setup_.command = options.command;
  setup_.folder = folder;
  setup_.is_over = is_interrupted;
  setup_.say = say;
  setup_.environment = [agent, environment = base::current_environment()](const std::string& run) {
    return with_agent(environment, agent, run);
  };
}

tune::PatchedSource Tuner::in_source(const model::Plan& plan) const {
  return tune::patch_source(plan, {plain_facts_, plain_settings_, main_script(options_.command)}, tune::read_source);
}

model::Tuning Tuner::tune() {
  model::Tuning tuning;
  machine_ = std::async(std::launch::async, [] { return look_at_machine(); });
  auto first = start({.steps = kFirstSteps, .enough = kEnough, .lengths = may_change_batch(), .limit = first_limit()});
  if (tune::is_out_of_memory(first.failure)) first = start_in_parts(std::move(first));
  if (!first.failure.empty()) {
    const bool is_late = 1000 * first.seconds >= static_cast<double>(first_limit().count());
    tuning.failure = first.failure;
    if (is_late)
      tuning.failure +=
          fmt::format(": it gets {:.0f} s for {} steps and what comes before them, and --minutes gives more",
                      first_limit().count() / 1000.0, kFewestSteps);
    return tuning;
  }
  learn(first);
  tuning =
      tune::search({.look = [&](const auto& plan, const auto& tries) { return look(plan, tries); },
                    .measure = [&](const auto& plan, const auto& tries) { return measure(plan, tries); },
                    .in_turns = [&](const auto& turning) { return in_turns(turning); }},
                   {.starts = kMostStarts - number_,
                    .why_over = [&] { return why_over(); },
                    .is_late = [&] { return seconds_left() < 30 * options_.minutes; }},
                   {.worth_it = [&](const auto& fix) { fmt::print(stderr, "{}", show::candidate_line(fix, style_)); },
                    .tried = [&](const auto& fix) { fmt::print(stderr, "{}", show::tried_line(fix, style_)); }},
                   needed_);
  const bool was_looked_at = tuning.before_ms > 0;
  if (!was_looked_at && needed_.fixes.empty() && tuning.failure.empty() && !is_interrupted())
    tuning.failure =
        fmt::format("{:.3g} minutes are over after the first start; --minutes gives more", options_.minutes);
  const auto advised = names_of(tuning.plan);
  tuning.plan.made_for = first.target;
  if (const auto caveat = batch_norm_caveat(); !needed_.fixes.empty() && !caveat.empty()) say(caveat);
  const bool may_grow = may_change_batch() && needed_.fixes.empty();
  if (may_grow && tuning.failure.empty() && !is_interrupted()) try_batches(tuning);
  tuning.search_starts = number_;
  tuning.search_s = seconds();
  if (options_.proves && tuning.failure.empty() && tuning.has_found() && !is_interrupted()) prove(tuning);
  if (names_of(tuning.plan) != advised) {
    tuning.advice = tuning.has_found() ? std::vector<model::Advice>{} : plain_advice_;
    tuning.remaining = tuning.has_found() ? std::vector<model::Finding>{} : plain_remaining_;
    tune::drop_disproved(tuning.remaining, tuning.tried);
  }
  tuning.interrupted = is_interrupted();
  return tuning;
}

model::Trial Tuner::start(const tune::TrialRequest& request) {
  ++number_;
  auto trial = tune::kept_trial(setup_, request, number_);
  if (!trial) {
    trial = tune::run_trial(setup_, request, number_);
    if (is_interrupted()) trial->failure = "interrupted";
    if (!is_interrupted()) tune::keep_trial(setup_, request, *trial, number_);
  } else {
    earlier_seconds_ += trial->seconds;
  }
  last_seconds_ = trial->seconds;
  return *std::move(trial);
}

double Tuner::seconds() const {
  return earlier_seconds_ + std::chrono::duration<double>(Clock::now() - started_).count();
}

double Tuner::seconds_left() const {
  return 60 * options_.minutes - seconds();
}

milliseconds Tuner::first_limit() const {
  return std::max(kFirstLimit, milliseconds(static_cast<std::int64_t>(30000 * options_.minutes)));
}

std::string Tuner::why_over() const {
  if (is_interrupted()) return "interrupted";
  return seconds_left() < last_seconds_ ? "there was no time left" : std::string();
}

void Tuner::say(const std::string& text) {
  fmt::print(stderr, "fullwatt: {}\n", text);
}

void Tuner::learn(const model::Trial& first) {
  const auto sum = std::accumulate(first.step_ms.begin(), first.step_ms.end(), 0.0);
  step_ms_ = std::max(kLeastStepMs, sum / static_cast<double>(first.step_ms.size()));
  steps_ = steps_for(kMeasuredMs, kFewestSteps);
  lengths_ = first.lengths;
  limit_ = milliseconds(static_cast<std::int64_t>(4 * (1000 * first.seconds + kMeasuredMs) + 60000));
}

/// As many as take so long. A few are too few to tell anything by, unless they are long.
std::uint64_t Tuner::steps_for(double ms, std::uint64_t fewest) const {
  const auto in_time = static_cast<std::uint64_t>(1000 * static_cast<double>(kEnough.count()) / step_ms_);
  const auto least = std::clamp(in_time, fewest, kFirstSteps);
  return std::clamp(static_cast<std::uint64_t>(ms / step_ms_), least, kMostSteps);
}

/// Explains the program with a plan and asks which fixes make sense then.
tune::Look Tuner::look(const model::Plan& plan, const std::string& tries) {
  const bool is_first = plan.fixes.size() == needed_.fixes.size();
  say("looks where the time goes" + (is_first ? std::string() : " with " + names_of(plan)));
  tune::Look found;
  tune::TrialRequest request{.plan = plan,
                             .steps = steps_for(kExplainedMs, kFewestExplainedSteps),
                             .tries = tries,
                             .windows = true,
                             .ceiling = is_first,
                             .limit = limit_ + kLongerLimit};
  found.trial = start(request);
  if (request.ceiling && !found.trial.failure.empty() && !is_interrupted()) {
    request.ceiling = false;  // there are programs that check that a batch is another one
    found.trial = start(request);
  }
  keep_sources(found.trial.folder);
  keep_machine(machine_.get(), found.trial.folder);
  const auto explained = explain_folder(found.trial.folder);
  if (!explained || explained->run.processes.empty() || explained->explanation.steps == 0) return found;
  say(fmt::format("a step takes {:.3g} ms", explained->explanation.step_ms.mean));
  const auto facts = explain::parse_facts(explained->run.processes.front());
  if (is_first) {
    plain_facts_ = facts;
    plain_settings_ = explained->explanation.settings;
    plain_advice_ = tune::advice(explained->explanation);
    plain_remaining_ = tune::remaining(explained->explanation);
  }
  found.advice = tune::advice(explained->explanation);
  found.remaining = tune::remaining(explained->explanation);
  const auto cpus = usable_cpus();
  const auto allowed = explain::allowed_cpus(explained->run).value_or(static_cast<double>(cpus.size()));
  base::RealFiles files;
  found.candidates =
      tune::candidates({explained->explanation, facts, std::max(1, static_cast<int>(allowed)), free_memory(),
                        near_trained_gpu(files, explained->run, facts, cpus), tune::cpu_knows_bfloat16(files)});
  std::erase_if(found.candidates, [&](const auto& candidate) {
    return is_unwanted(candidate.fix.id) || is_settled(plan, candidate.fix.id);
  });
  return found;
}

model::Trial Tuner::measure(const model::Plan& plan, const std::string& tries) {
  return start({.plan = plan, .steps = steps_, .tries = tries, .limit = limit_});
}

/// Where steps are long, fewer pairs must do, and shorter ones where a program has few. Should its steps not suffice,
/// those that are left get another start.
model::Trial Tuner::in_turns(const tune::Turning& turning) {
  tune::InTurns turns;
  const auto step_ms = std::max(kLeastStepMs, turning.step_ms);
  if (step_ms > kLongStepMs) turns.pairs = kFewPairs;
  if (turning.program_is_short) turns.seconds = kShortTurn;
  turns.most_seconds = seconds_left();
  auto plan = turning.plan;
  for (const auto& fix : turning.fixes) {
    turns.fixes.push_back(fix.id);
    plan.fixes.push_back(fix);
  }
  const auto half = static_cast<std::uint64_t>(kTurnMargin + std::min(kMostTurn, 1000 * turns.seconds / step_ms));
  const auto steps = 2 * turning.fixes.size() * 2 * kUsualPairs * half;
  const milliseconds longest(static_cast<std::int64_t>(static_cast<double>(steps) * step_ms));
  return start({.plan = plan, .steps = steps + kFirstSteps, .turns = turns, .limit = limit_ + kLongerLimit + longest});
}

bool Tuner::is_unwanted(const std::string& id) const {
  const auto* fix = catalog::find_fix(id);
  return std::ranges::find(options_.skip, id) != options_.skip.end() ||
         (options_.exact && fix->kind != catalog::FixClass::exact);
}

/// What harms the training is taken out, and the rest is proved by itself: first what makes it another training, then
/// what rounds otherwise.
void Tuner::prove(model::Tuning& tuning) {
  prove_once(tuning);
  for (const auto kind : {catalog::FixClass::training, catalog::FixClass::numeric}) {
    const bool harms = tuning.speed.is_faster() && tuning.loss.verdict != model::LossProof::Verdict::not_worse;
    if (!harms || is_interrupted()) break;
    const auto reason = fmt::format("with it the loss is {}", to_string(tuning.loss.verdict));
    if (!drop(tuning, kind, reason)) continue;
    if (!tuning.has_found()) break;
    say("the loss suffers: proves the plan without what may be the cause");
    prove_once(tuning);
  }
  if (!is_interrupted() && !tuning.is_proved()) give_up(tuning);
}

/// Nothing is kept that is not proved.
void Tuner::give_up(model::Tuning& tuning) {
  const auto reason = tuning.speed.is_faster()
                          ? fmt::format("in the proof the loss is {}", to_string(tuning.loss.verdict))
                          : "in the proof the plan is not faster beyond noise";
  for (const auto kind : {catalog::FixClass::training, catalog::FixClass::numeric, catalog::FixClass::exact})
    drop(tuning, kind, reason);
}

/// Pairs with and without the plan, each pair with a seed of its own, in turning order.
void Tuner::prove_once(model::Tuning& tuning) {
  say(fmt::format("proves the plan: {} pairs of starts, about {:.0f} s in all", options_.seeds,
                  2 * options_.seeds * last_seconds_));
  const auto own = own_batch();
  std::vector<tune::Pair> pairs;
  for (int seed = 0; seed < options_.seeds && !is_interrupted(); ++seed) {
    const auto run = [&](const model::Plan& plan) {
      // As many samples with the plan as without.
      const auto batch = std::ranges::find(plan.fixes, "batch-size", &model::PlannedFix::id);
      const auto steps = batch != plan.fixes.end() ? steps_ * own / std::stoull(batch->settings.at("size")) : steps_;
      return start({.plan = plan,
                    .steps = std::max<std::uint64_t>(kFirstSteps, steps),
                    .seed_offset = seed,
                    .losses = true,
                    .limit = limit_});
    };
    tune::Pair pair;
    if (seed % 2 == 0) pair.first = run(needed_);
    pair.second = run(tuning.plan);
    if (seed % 2 == 1) pair.first = run(needed_);
    pairs.push_back(std::move(pair));
  }
  tuning.speed = tune::prove_speed(pairs);
  tuning.loss = tune::prove_losses(pairs);
  tuning.pairs = tune::told(pairs);
  std::tie(tuning.gpu_before, tuning.gpu_after) = tune::gpu_work(pairs);
  if (const auto steps = tune::step_ms(pairs)) std::tie(tuning.before_ms, tuning.after_ms) = *steps;
}

}  // namespace fullwatt::cli
