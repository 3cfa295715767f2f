#pragma once

#include <functional>
#include <vector>

#include "fullwatt/model/proof.hpp"
#include "fullwatt/tune/candidates.hpp"

namespace fullwatt::tune {

/// The program with a plan, explained: how long its steps are, and what is worth a trial on top of the plan.
struct Look {
  model::Trial trial;
  std::vector<Candidate> candidates;
};

/// The ways to start the program.
struct Starts {
  std::function<Look(const model::Plan&)> look;
  std::function<model::Trial(const model::Plan&)> measure;
  /// The fixes take turns on top of the plan.
  std::function<model::Trial(const model::Plan&, const std::vector<model::PlannedFix>&)> in_turns;
};

struct SearchLimits {
  int starts = 12;
  std::function<bool()> is_over = [] { return false; };  ///< the time is up, or the user wants the best so far
  std::function<bool()> is_late = [] { return false; };  ///< what is left of it is for trying
};

/// Who wants to know what goes on.
struct SearchListener {
  std::function<void(const model::TriedFix&)> worth_it = [](const auto&) {};  ///< before the trial
  std::function<void(const model::TriedFix&)> tried = [](const auto&) {};
};

/// Looks where the time goes, tries what is worth it on top of what was kept, and looks again: each fix changes what
/// the others can give. Keeps what makes a step shorter beyond noise, on top of what the program needs anyway.
model::Tuning search(const Starts& starts, const SearchLimits& limits, const SearchListener& listener,
                     const model::Plan& needed = {});

}  // namespace fullwatt::tune
