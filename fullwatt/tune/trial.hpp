#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/base/process.hpp"
#include "fullwatt/explain/facts.hpp"
#include "fullwatt/model/proof.hpp"

namespace fullwatt::tune {

/// Fixes that are turned on and off while the program trains, one after the other; they stand in the plan, too.
struct InTurns {
  std::vector<std::string> fixes;
  int pairs = 12;           ///< at most; fewer where these tell already
  double seconds = 0.2;     ///< of each half of a pair, or a few steps where these take longer
  double most_seconds = 0;  ///< from the start until no more turns are taken; no part of what makes a trial another one
};

/// What a trial is to be.
struct TrialRequest {
  model::Plan plan;
  std::uint64_t steps = 0;
  std::chrono::seconds enough{0};  ///< fewer steps do where they take so long together; 0: never
  int seed_offset = 0;
  InTurns turns;
  std::string tries;     ///< the fix that the trial is for: refused, it is over before its last step
  bool losses = false;   ///< of every step
  bool windows = false;  ///< record what explains a step, too
  bool ceiling = false;  ///< and measure steps without a loader behind the last one
  bool lengths = false;  ///< of the samples, read behind the last step
  /// Has the start train on a batch of the longest samples, so that its memory is as much as there can be.
  std::optional<model::SampleLengths> longest;
  std::chrono::milliseconds limit{0};
};

/// How trials are started on this machine.
struct TrialSetup {
  std::string program;               ///< fullwatt itself, which is the sandbox
  std::vector<std::string> command;  ///< the user's
  std::string folder;                ///< for the trials' own folders
  /// The environment with the agent in it, for a run folder.
  std::function<base::Environment(const std::string& run_folder)> environment;
  std::function<bool()> is_over = [] { return false; };  ///< the user wants no more of it: a trial ends at once
  std::function<void(const std::string&)> say = [](const auto&) {};
};

/// Starts the program once, in a sandbox, for that many steps. What goes wrong is told in the trial itself.
model::Trial run_trial(const TrialSetup& setup, const TrialRequest& request, int number);

/// Of the card that holds the model, from what the agent told; nothing where none does.
std::optional<model::CardMemory> card_memory(const explain::ProcessFacts& facts);

/// Whether that is why a trial failed, by the program's own last words.
bool is_out_of_memory(const std::string& failure);

/// Writes down that a trial is over, so that a tuning that is cut off can go on behind it.
void keep_trial(const TrialSetup& setup, const TrialRequest& request, const model::Trial& trial, int number);
/// The trial of that number if it is over and was the same; nothing otherwise.
std::optional<model::Trial> kept_trial(const TrialSetup& setup, const TrialRequest& request, int number);
/// How many are kept, counted from the first.
int kept_trials(const std::string& folder);
/// A file of the program that has changed since one of them; empty when none has.
std::string changed_since(const std::string& folder);

}  // namespace fullwatt::tune
