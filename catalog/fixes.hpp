#pragma once

#include <span>
#include <string_view>

#include "catalog/catalog.hpp"

/// What can be changed in a training without touching its code: `fixes.yaml`, whose head explains the fields.
namespace fullwatt::catalog {

/// What a fix does to the results.
enum class FixClass { exact, numeric, training };
std::string_view to_string(FixClass kind);

/// A value that stands beside the fix's id in a plan.
struct FixSetting {
  enum class Kind { count, text, flag };
  std::string_view name;
  Kind kind;
  bool required;
};

struct Fix {
  std::string_view id;
  FixClass kind;
  int order;  ///< fixes stand in a plan from low to high
  bool live;  ///< can be turned on and off while the program trains
  std::span<const FixSetting> settings;
  std::span<const std::string_view> mends;   ///< ids of findings
  std::span<const std::string_view> unlike;  ///< ids of fixes that it cannot stand beside
  Words title;
  Words what;
  Words risk;
  std::string_view patch;  ///< what a person would write instead

  const FixSetting* setting(std::string_view name) const;
};

/// All fixes, by order.
std::span<const Fix> fixes();
const Fix* find_fix(std::string_view id);
/// Whether two fixes cannot stand in one plan.
bool exclude_each_other(std::string_view one, std::string_view other);
/// The id nearest to a mistyped one; empty when none is near.
std::string_view nearest_fix(std::string_view id);

}  // namespace fullwatt::catalog
