#include "fullwatt/model/run.hpp"

#include <string_view>

namespace fullwatt::model {

std::string_view to_string(Phase phase) {
  constexpr std::array<std::string_view, kPhaseCount> kNames{"data",    "backward",   "optimizer", "save",
                                                             "garbage", "evaluation", "compile",   "agent"};
  const auto at = static_cast<std::size_t>(phase);
  return at < kNames.size() ? kNames[at] : std::string_view{"unknown"};
}

std::string_view to_string(TrainingProcess::Role role) {
  switch (role) {
    case TrainingProcess::Role::trainer:
      return "trainer";
    case TrainingProcess::Role::worker:
      return "worker";
    case TrainingProcess::Role::native:
      return "native";
  }
  return "unknown";
}

}  // namespace fullwatt::model
