#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace fullwatt::base {

/// Why a value is not there. Absence is a value: never -1, never a blank.
enum class Absent {
  not_asked,      ///< nobody looked, on purpose
  not_there,      ///< the thing itself does not exist
  unsupported,    ///< this device, driver or kernel does not offer it
  no_permission,  ///< it exists, we may not read it
  asleep,         ///< reading would wake a sleeping GPU
  timed_out,      ///< no answer within the limit
  failed,         ///< it was asked and answered with an error, see detail
};

std::string_view to_string(Absent reason);
Absent absent_from_string(std::string_view text);

struct Absence {
  Absent reason = Absent::not_asked;
  int code = 0;        ///< errno, NVML or CUDA code where there is one
  std::string detail;  ///< text from the source, untrusted

  bool operator==(const Absence&) const = default;
};

/// A value, or the reason why there is none.
template <class T>
class Reading : public std::expected<T, Absence> {
 public:
  using std::expected<T, Absence>::expected;
  Reading() : std::expected<T, Absence>(std::unexpected(Absence{})) {}
  Reading(Absence why) : std::expected<T, Absence>(std::unexpected(std::move(why))) {}

  /// True when there is a value and it equals `wanted`: an absent value equals nothing.
  bool is(const T& wanted) const { return this->has_value() && **this == wanted; }
};

inline Absence absent(Absent reason, std::string detail = {}, int code = 0) {
  return {reason, code, std::move(detail)};
}

/// The reason that belongs to an errno value.
Absence absent_from_errno(int error);

}  // namespace fullwatt::base
