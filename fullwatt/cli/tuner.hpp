#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "fullwatt/cli/agent_paths.hpp"
#include "fullwatt/cli/examination.hpp"
#include "fullwatt/explain/facts.hpp"
#include "fullwatt/show/style.hpp"
#include "fullwatt/tune/batch_size.hpp"
#include "fullwatt/tune/proof.hpp"
#include "fullwatt/tune/search.hpp"
#include "fullwatt/tune/source_patch.hpp"
#include "fullwatt/tune/trial.hpp"

namespace fullwatt::cli {

struct TuneOptions {
  std::vector<std::string> command;
  std::string output = "fullwatt-plan.yaml";
  int seeds = 5;
  double minutes = 5;
  bool exact = false;
  bool json = false;
  bool write = false;
  bool anew = false;  ///< do not go on where an earlier tuning was cut off
  bool keep = false;  ///< what each start recorded
  bool proves = true;
  std::vector<std::string> skip;
  std::vector<std::string> allow;
};

/// One session of tuning: everything that starts the program. The first Ctrl-C asks for the best so far.
class Tuner {
 public:
  /// Trials go into `folder`; those that it has already are not started again.
  Tuner(const TuneOptions& options, const AgentPaths& agent, const show::Style& style, const std::string& folder);

  model::Tuning tune();
  /// The plan in the user's own source.
  tune::PatchedSource in_source(const model::Plan& plan) const;

 private:
  static constexpr std::uint64_t kFirstSteps = 40;                 ///< of the first start, and of any with short steps
  static constexpr std::chrono::seconds kEnough{20};               ///< for fewer that are long
  static constexpr int kMostStarts = 12;                           ///< to find the plan
  static constexpr std::chrono::milliseconds kFirstLimit{120000};  ///< at least
  static constexpr std::chrono::milliseconds kLongerLimit{60000};  ///< for windows, or for compiling

  model::Trial start(const tune::TrialRequest& request);
  double seconds() const;       ///< since the beginning, with what was done before a tuning was cut off
  double seconds_left() const;  ///< to find the plan
  /// Of starts before it is known how long a step is.
  std::chrono::milliseconds first_limit() const;
  std::string why_over() const;  ///< there is no other start on the way to it; empty while there may be one
  static void say(const std::string& text);

  // Finding the plan.
  void learn(const model::Trial& first);
  std::uint64_t steps_for(double ms, std::uint64_t fewest) const;
  tune::Look look(const model::Plan& plan, const std::string& tries);
  model::Trial measure(const model::Plan& plan, const std::string& tries);
  model::Trial in_turns(const tune::Turning& turning);
  bool is_unwanted(const std::string& id) const;

  // Another batch, where that is allowed: tuner_batch.cpp.
  bool may_change_batch() const;
  model::Trial start_in_parts(model::Trial whole);
  void try_batches(model::Tuning& tuning);
  void say_lengths() const;
  base::Result<tune::BatchProbe> probe_batch(const model::Plan& plan, const tune::BatchPrediction& asked);
  model::TriedFix judged(const tune::BatchChoice& choice) const;
  std::string batch_norm_caveat() const;  ///< empty where the model has none
  model::Trial measure_batch(model::Plan plan, std::uint64_t own, std::uint64_t batch);
  model::PlannedFix batch_fix(std::uint64_t own, std::uint64_t batch) const;
  std::uint64_t own_batch() const;  ///< of the program's loader; 0 where that has none
  std::uint64_t usable_memory(const model::Trial& trial) const;

  // The proof.
  void prove(model::Tuning& tuning);
  void prove_once(model::Tuning& tuning);
  static void give_up(model::Tuning& tuning);

  const TuneOptions& options_;
  const show::Style& style_;
  tune::TrialSetup setup_;
  std::chrono::steady_clock::time_point started_;
  std::shared_future<base::Result<Examined>> machine_;
  model::Plan needed_;                             ///< without which the program has no room
  explain::ProcessFacts plain_facts_;              ///< of the program without any fix
  std::vector<model::SettingRow> plain_settings_;  ///< its configuration, beside what is in force
  std::vector<model::Advice> plain_advice_;        ///< for it as it is
  std::vector<model::Finding> plain_remaining_;    ///< of it as it is
  std::optional<model::SampleLengths> lengths_;    ///< known where the batch may be changed
  int number_ = 0;
  double last_seconds_ = 0;     ///< of a start
  double earlier_seconds_ = 0;  ///< of starts before the tuning was cut off
  double step_ms_ = 0;          ///< as the program is
  std::uint64_t steps_ = 0;
  std::chrono::milliseconds limit_{0};
};

/// Whether the user wants the best so far.
bool is_interrupted();
/// From now on the first Ctrl-C says so, or the first signal that ends jobs; the second ends the program.
void listen_to_interrupts();
std::uint64_t free_memory();

}  // namespace fullwatt::cli
