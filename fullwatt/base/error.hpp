#pragma once

#include <expected>
#include <string>
#include <utility>

namespace fullwatt::base {

/// What went wrong, in a form that can be shown to a person: the message says what and why, the remedy what to do.
struct Error {
  enum class Kind {
    bad_input,    ///< what the user gave cannot be used
    not_found,    ///< a file, library or program is not there
    refused,      ///< permission, security policy
    unavailable,  ///< the outside world did not answer as it should
  };
  Kind kind = Kind::unavailable;
  std::string message;
  std::string remedy;
};

template <class T>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> fail(Error::Kind kind, std::string message, std::string remedy = {}) {
  return std::unexpected(Error{kind, std::move(message), std::move(remedy)});
}

}  // namespace fullwatt::base
