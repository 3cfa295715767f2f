#include "catalog/fixes.hpp"

#include <algorithm>
#include <vector>

#include "catalog/tables.hpp"

#include "fullwatt/base/text.hpp"

namespace fullwatt::catalog {

std::string_view to_string(FixClass kind) {
  switch (kind) {
    case FixClass::exact:
      return "exact";
    case FixClass::numeric:
      return "numeric";
    case FixClass::training:
      return "training";
  }
  return "";
}

const FixSetting* Fix::setting(std::string_view name) const {
  const auto found = std::ranges::find(settings, name, &FixSetting::name);
  return found != settings.end() ? &*found : nullptr;
}

std::span<const Fix> fixes() {
  return tables().fixes;
}

const Fix* find_fix(std::string_view id) {
  const auto all = fixes();
  const auto found = std::ranges::find(all, id, &Fix::id);
  return found != all.end() ? &*found : nullptr;
}

bool exclude_each_other(std::string_view one, std::string_view other) {
  const auto names = [](std::string_view id, std::string_view wanted) {
    const auto* fix = find_fix(id);
    return fix != nullptr && std::ranges::find(fix->unlike, wanted) != fix->unlike.end();
  };
  return names(one, other) || names(other, one);
}

std::string_view nearest_fix(std::string_view id) {
  std::vector<std::string_view> ids;
  for (const auto& fix : fixes()) ids.push_back(fix.id);
  return base::nearest(id, ids);
}

}  // namespace fullwatt::catalog
