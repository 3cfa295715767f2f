#pragma once

#include <functional>
#include <span>

#include "fullwatt/model/proof.hpp"
#include "fullwatt/tune/candidates.hpp"

namespace fullwatt::tune {

/// Runs the program with a plan.
using TryPlan = std::function<model::Trial(const model::Plan&)>;

struct SearchLimits {
  int starts = 12;
  std::function<bool()> is_over = [] { return false; };  ///< the time is up, or the user wants the best so far
};

/// Tries the candidates one after the other on top of those that were kept, since each changes what the later ones can
/// give, and keeps what makes a step shorter beyond noise.
model::Tuning search(std::span<const Candidate> candidates, const TryPlan& try_plan, const SearchLimits& limits,
                     const std::function<void(const model::TriedFix&)>& told);

}  // namespace fullwatt::tune
