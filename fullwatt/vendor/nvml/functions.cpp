#include "fullwatt/vendor/nvml/functions.hpp"

#include "fullwatt/model/nvml.hpp"

namespace fullwatt::vendor::nvml {

using base::Absent;

base::Absence absence_of(abi::Return code) {
  switch (code) {
    case model::nvml_code::kNotSupported:
    case abi::kFunctionNotFound:
    case abi::kArgumentVersionMismatch:
    case abi::kDeprecated:
      return base::absent(Absent::unsupported, {}, code);
    case model::nvml_code::kNoPermission:
      return base::absent(Absent::no_permission, {}, code);
    default:
      return base::absent(Absent::failed, {}, code);
  }
}

base::Absence missing_function() {
  return base::absent(Absent::unsupported, "function not in this driver's NVML");
}

Reading<int> number(unsigned value) {
  if (!std::in_range<int>(value)) return base::absent(Absent::unsupported, "NVML has no value");
  return static_cast<int>(value);
}

Reading<int> number(const Reading<unsigned>& value) {
  return derive<int>(value, [](unsigned present) { return number(present); });
}

Reading<bool> flag(const Reading<unsigned>& value) {
  return derive<bool>(value, [](unsigned present) { return present != 0; });
}

}  // namespace fullwatt::vendor::nvml
