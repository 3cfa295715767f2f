#include "fullwatt/model/proof.hpp"

namespace fullwatt::model {

std::optional<double> TriedFix::speedup() const {
  if (!before_ms || !after_ms || *after_ms <= 0) return std::nullopt;
  return *before_ms / *after_ms;
}

std::optional<double> TriedFix::steps_to_pay() const {
  if (once_s <= 0 || !before_ms || !after_ms || *after_ms >= *before_ms) return std::nullopt;
  return once_s * 1e3 / (*before_ms - *after_ms);
}

std::string_view TriedFix::priority() const {
  constexpr double kHighest = 1.2;
  constexpr double kHigh = 1.1;
  constexpr double kMedium = 1.05;
  const auto times = speedup().value_or(1);
  return times >= kHighest ? "highest" : times >= kHigh ? "high" : times >= kMedium ? "medium" : "low";
}

std::string_view to_string(LossProof::Verdict verdict) {
  switch (verdict) {
    case LossProof::Verdict::not_worse:
      return "not-worse";
    case LossProof::Verdict::worse:
      return "worse";
    case LossProof::Verdict::inconclusive:
      return "inconclusive";
    case LossProof::Verdict::unknown:
      return "unknown";
  }
  return "";
}

}  // namespace fullwatt::model
