#include "fullwatt/doctor/rules/rule.hpp"

namespace fullwatt::doctor {

std::span<const Rule> hardware_rules() {
  return {};
}

}  // namespace fullwatt::doctor
