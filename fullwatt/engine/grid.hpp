#pragma once

#include <optional>

#include "fullwatt/engine/config.hpp"

/// Trainings over listed values of settings: every value with every other.
namespace fullwatt::engine {

/// One of them.
struct Trial {
  std::string name;                    ///< as "model.hidden=128,optimizer.lr=0.001", a folder's name
  std::vector<std::string> overrides;  ///< with its own output folder
};
std::vector<Trial> trials_of(const Config& config);

/// The mean loss of the last epoch that a folder's metrics tell of.
std::optional<double> last_epoch_loss(const std::string& folder);

}  // namespace fullwatt::engine
