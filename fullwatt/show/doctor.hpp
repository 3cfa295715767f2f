#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullwatt/model/finding.hpp"
#include "fullwatt/model/json.hpp"
#include "fullwatt/model/machine.hpp"
#include "fullwatt/show/style.hpp"

/// Draws a diagnosis; measures nothing.
namespace fullwatt::show {

struct DoctorReport {
  model::Machine machine;
  model::Diagnosis diagnosis;
  double seconds = 0;
  std::uint64_t peak_memory_bytes = 0;  ///< of this program itself, without its children
};

std::string doctor_text(const DoctorReport& report, const Style& style, bool verbose);
std::string doctor_markdown(const DoctorReport& report, catalog::Language language);
std::string doctor_html(const DoctorReport& report, catalog::Language language);
/// docs/doctor.schema.json describes it.
model::Json doctor_json(const DoctorReport& report, catalog::Language language);

/// The one sentence that a report ends with.
std::string closing_sentence(const DoctorReport& report, catalog::Language language);

/// Findings as a report groups them.
struct Grouped {
  const model::Finding* root = nullptr;
  std::vector<const model::Finding*> wrong;    ///< other warnings and errors
  std::vector<const model::Finding*> follows;  ///< consequences
  std::vector<const model::Finding*> notes;
};
Grouped group(const model::Diagnosis& diagnosis);

}  // namespace fullwatt::show
