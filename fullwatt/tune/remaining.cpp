#include "fullwatt/tune/remaining.hpp"

#include <algorithm>

#include "catalog/fixes.hpp"

namespace fullwatt::tune {
namespace {

constexpr double kWorthTelling = 0.05;  ///< of a step

}  // namespace

std::vector<model::Finding> remaining(const model::Explanation& explanation) {
  std::vector<model::Finding> found;
  const auto folder = explanation.info.folder + "/";
  for (auto finding : explanation.findings) {
    if (finding.gain_ms.value_or(0) < kWorthTelling * explanation.step_ms.mean || !finding.consequence_of.empty())
      continue;
    if (folder.size() > 1 && finding.file.starts_with(folder)) finding.file.erase(0, folder.size());
    found.push_back(std::move(finding));
  }
  std::ranges::stable_sort(found, std::ranges::greater(), [](const auto& finding) { return *finding.gain_ms; });
  return found;
}

void drop_disproved(std::vector<model::Finding>& findings, const std::vector<model::TriedFix>& tried) {
  std::erase_if(findings, [&](const auto& finding) {
    return std::ranges::any_of(tried, [&](const auto& fix) {
      const auto* entry = catalog::find_fix(fix.fix.id);
      return !fix.kept && fix.speedup() && entry != nullptr &&
             std::ranges::find(entry->mends, finding.id) != entry->mends.end();
    });
  });
}

}  // namespace fullwatt::tune
