#include "fullwatt/show/doctor.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace fullwatt::show {

Grouped group(const model::Diagnosis& diagnosis) {
  Grouped grouped;
  for (const auto& finding : diagnosis.findings) {
    if (finding.id == diagnosis.root_cause) {
      grouped.root = &finding;
    } else if (!finding.consequence_of.empty()) {
      grouped.follows.push_back(&finding);
    } else if (finding.severity >= model::Severity::warning) {
      grouped.wrong.push_back(&finding);
    } else {
      grouped.notes.push_back(&finding);
    }
  }
  return grouped;
}

std::string closing_sentence(const DoctorReport& report, catalog::Language language) {
  const auto say = [&](std::string_view key) { return std::string(catalog::label(key, language)); };
  const auto grouped = group(report.diagnosis);
  if (grouped.root != nullptr) return say("first_mend") + ": " + grouped.root->id;
  if (!grouped.wrong.empty()) return say("only_warnings") + ": " + grouped.wrong.front()->id;
  if (!report.machine.problems.empty()) return say("not_examined");
  if (report.diagnosis.find("no-nvidia-gpu") != nullptr) return say("all_well_no_gpu");
  if (report.diagnosis.find("gpu-runtime-suspended") != nullptr) return say("all_well_asleep");
  return say("all_well");
}

}  // namespace fullwatt::show
