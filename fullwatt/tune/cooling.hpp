#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "fullwatt/model/run.hpp"

namespace fullwatt::tune {

/// Whether a card is so hot that its figures say nothing: at 85 °C, or slowed down by heat.
bool is_hot(const model::GpuSample& sample);

/// How one waits for a card.
struct Cooling {
  std::function<std::optional<model::GpuSample>()> newest;  ///< of the card
  std::function<void(const std::string&)> say;
  std::function<bool()> is_over;  ///< the user does not want to wait
  std::chrono::milliseconds pause{500};
  int most_pauses = 240;
};

/// Waits until a hot card has cooled down to 80 °C, but not forever: one that is always hot is tuned as it is.
void wait_until_cool(const Cooling& cooling);

}  // namespace fullwatt::tune
