#pragma once

#include <set>
#include <string>

#include "fullwatt/model/finding.hpp"
#include "fullwatt/model/machine.hpp"

namespace fullwatt::doctor {

/// Which checks to run: prefixes of ids or names of layers. Empty `only` means all.
struct Choice {
  std::set<std::string> only;
  std::set<std::string> skip;

  bool wants(std::string_view id, model::Layer layer) const;
};

/// From facts to an answer: a pure function, the same for a live and a recorded machine.
model::Diagnosis diagnose(const model::Machine& machine, const Choice& choice = {});

}  // namespace fullwatt::doctor
