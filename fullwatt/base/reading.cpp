#include "fullwatt/base/reading.hpp"

#include <array>
#include <cerrno>
#include <cstring>

namespace fullwatt::base {
namespace {

constexpr std::array kNames{
    std::pair{Absent::not_asked, std::string_view{"not-asked"}},
    std::pair{Absent::not_there, std::string_view{"not-there"}},
    std::pair{Absent::unsupported, std::string_view{"unsupported"}},
    std::pair{Absent::no_permission, std::string_view{"no-permission"}},
    std::pair{Absent::asleep, std::string_view{"asleep"}},
    std::pair{Absent::timed_out, std::string_view{"timed-out"}},
    std::pair{Absent::failed, std::string_view{"failed"}},
};

}  // namespace

std::string_view to_string(Absent reason) {
  for (const auto& [value, name] : kNames) {
    if (value == reason) return name;
  }
  return "failed";
}

Absent absent_from_string(std::string_view text) {
  for (const auto& [value, name] : kNames) {
    if (name == text) return value;
  }
  return Absent::failed;
}

Absence absent_from_errno(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ENXIO:
    case ENODEV:
      return absent(Absent::not_there, std::strerror(error), error);
    case EACCES:
    case EPERM:
      return absent(Absent::no_permission, std::strerror(error), error);
    default:
      return absent(Absent::failed, std::strerror(error), error);
  }
}

}  // namespace fullwatt::base
