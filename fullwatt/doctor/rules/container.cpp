#include "fullwatt/doctor/rules/rule.hpp"

namespace fullwatt::doctor {

std::span<const Rule> container_rules() {
  return {};
}

}  // namespace fullwatt::doctor
