#include "fullwatt/model/proof.hpp"

namespace fullwatt::model {

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
