#pragma once

#include <optional>

#include "fullwatt/explain/facts.hpp"

namespace fullwatt::explain {

/// What a step's operations would take a single thread of a CPU, at most: at a pace that any CPU of the last ten years
/// has.
struct OneThread {
  double working_ms = 0;
  double beginning_ms = 0;  ///< from Python to the work of each; 0 where it is not known how many they are
};
/// Nothing where the operations were not counted.
std::optional<OneThread> one_thread(const ProcessFacts& facts);

}  // namespace fullwatt::explain
