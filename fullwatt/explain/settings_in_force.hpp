#pragma once

#include <span>
#include <string>
#include <string_view>

#include "fullwatt/explain/evidence.hpp"
#include "fullwatt/explain/source_facts.hpp"

namespace fullwatt::explain {

/// A setting as the training really runs.
struct InForce {
  std::string value;   ///< empty when it cannot be told
  std::string at;      ///< "train.py:40", where it was set; empty when not known
  std::string remark;  ///< why it cannot be told, or what else is to be known
};

/// A setting that fullwatt knows, by all the names it goes by.
struct KnownSetting {
  std::string_view name;       ///< canonical, such as loader.num_workers
  std::string_view spellings;  ///< blank-separated; one with a dot is the end of a path
  InForce (*in_force)(const Evidence&, const SourceFacts&);
};
std::span<const KnownSetting> known_settings();

/// "train.py:40"; empty for an unknown place.
std::string place_of(const model::Site& site);

}  // namespace fullwatt::explain
