#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fullwatt/model/proof.hpp"
#include "fullwatt/tune/candidates.hpp"

namespace fullwatt::tune {

/// The program with a plan, explained: how long its steps are, and what is worth a trial on top of the plan.
struct Look {
  model::Trial trial;
  std::vector<Candidate> candidates;
  std::vector<model::Advice> advice;
  std::vector<model::Finding> remaining;
};

/// A start in which fixes take turns on top of a plan.
struct Turning {
  model::Plan plan;
  std::vector<model::PlannedFix> fixes;
  double step_ms = 0;             ///< with the plan
  bool program_is_short = false;  ///< it ended before all fixes had their turns
};

/// The ways to start the program. `tries` is the fix of the plan that the start is for, if any: where that is refused,
/// the start may end.
struct Starts {
  std::function<Look(const model::Plan&, const std::string& tries)> look;
  std::function<model::Trial(const model::Plan&, const std::string& tries)> measure;
  std::function<model::Trial(const Turning&)> in_turns;
};

struct SearchLimits {
  int starts = 12;
  /// Why there is no other start, such as that the time does not suffice; empty while there may be one.
  std::function<std::string()> why_over = [] { return std::string(); };
  std::function<bool()> is_late = [] { return false; };  ///< what is left of it is for trying
};

/// Who wants to know what goes on.
struct SearchListener {
  std::function<void(const model::TriedFix&)> worth_it = [](const auto&) {};  ///< before the trial
  std::function<void(const model::TriedFix&)> tried = [](const auto&) {};
};

/// Looks where the time goes, tries what is worth it on top of what was kept, and looks again: each fix changes what
/// the others can give. What needs a start of its own is tried by a look, which is the next one if it pays. Keeps what
/// makes a step shorter beyond noise, on top of what the program needs anyway.
model::Tuning search(const Starts& starts, const SearchLimits& limits, const SearchListener& listener,
                     const model::Plan& needed = {});

}  // namespace fullwatt::tune
