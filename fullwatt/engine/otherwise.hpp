#pragma once

#include <string>

namespace fullwatt::engine {

/// A setting that is not in force as it was given.
struct Otherwise {
  std::string name;
  std::string value;
  std::string why;  ///< empty where the setting leaves the choice
};

}  // namespace fullwatt::engine
