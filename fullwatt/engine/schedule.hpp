#pragma once

#include <cstdint>

#include "fullwatt/engine/config.hpp"

namespace fullwatt::engine {

/// The learning rate of a step, counted from 0, of so many in all.
double rate_at(const OptimizerConfig& config, std::uint64_t step, std::uint64_t steps);

}  // namespace fullwatt::engine
