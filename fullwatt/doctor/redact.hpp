#pragma once

#include <map>
#include <string>

#include "fullwatt/doctor/probe/raw.hpp"

namespace fullwatt::doctor {

/// Takes out of a text what identifies a person or a machine: home folders, user and host names, GPU UUIDs, network
/// addresses, and values that look like secrets. The same thing gets the same replacement, so that a bundle still
/// replays.
class Redactor {
 public:
  explicit Redactor(const RawMachine& raw);

  std::string operator()(const std::string& text) const;
  /// The contents of the files: those with NUL bytes are saved as hex, where nobody would find a name any more.
  RawMachine operator()(RawMachine raw) const;

 private:
  void forget(const std::string& text, const std::string& replacement);

  std::map<std::string, std::string, std::greater<>> known_;  ///< longer ones that start alike come first
};

}  // namespace fullwatt::doctor
