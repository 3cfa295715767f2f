#include "fullwatt/doctor/rules/rule.hpp"

namespace fullwatt::doctor {

std::span<const Rule> cuda_rules() {
  return {};
}

}  // namespace fullwatt::doctor
