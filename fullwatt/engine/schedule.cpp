#include "fullwatt/engine/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fullwatt::engine {

double rate_at(const OptimizerConfig& config, std::uint64_t step, std::uint64_t steps) {
  const auto warm_up = static_cast<std::uint64_t>(config.warmup_steps);
  if (step < warm_up) return config.lr * static_cast<double>(step + 1) / static_cast<double>(warm_up);
  if (config.schedule == "constant" || steps <= warm_up) return config.lr;
  const double done = std::min(1.0, static_cast<double>(step - warm_up) / static_cast<double>(steps - warm_up));
  const double left = config.schedule == "cosine" ? (1 + std::cos(std::numbers::pi * done)) / 2 : 1 - done;
  return config.lr_min + (config.lr - config.lr_min) * left;
}

}  // namespace fullwatt::engine
