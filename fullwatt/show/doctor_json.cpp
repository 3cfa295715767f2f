#include <algorithm>

#include "fullwatt/show/doctor.hpp"
#include "fullwatt/show/finding_json.hpp"
#include "fullwatt/show/version.hpp"

namespace fullwatt::show {
namespace {

using model::Json;

Json counts(const model::Diagnosis& diagnosis) {
  Json json;
  for (const auto severity :
       {model::Severity::error, model::Severity::warning, model::Severity::note, model::Severity::info}) {
    json[std::string(model::to_string(severity))] =
        std::ranges::count(diagnosis.findings, severity, &model::Finding::severity);
  }
  return json;
}

}  // namespace

Json doctor_json(const DoctorReport& report, catalog::Language language) {
  Json json{{"schema_version", model::Diagnosis::kSchemaVersion},
            {"tool", {{"name", "fullwatt"}, {"version", kVersion}}}};
  json["seconds"] = report.seconds;
  json["peak_memory_bytes"] = report.peak_memory_bytes;
  json["root_cause"] = report.diagnosis.root_cause.empty() ? Json(nullptr) : Json(report.diagnosis.root_cause);
  json["conclusion"] = closing_sentence(report, language);
  json["counts"] = counts(report.diagnosis);
  json["layers"] = model::to_json(report.diagnosis.layers);
  json["findings"] = Json::array();
  for (const auto& finding : report.diagnosis.findings) json["findings"].push_back(finding_json(finding, language));
  json["checks"] = model::to_json(report.diagnosis.checks);
  json["problems"] = model::to_json(report.machine.problems);
  json["machine"] = model::to_json(report.machine);
  return json;
}

}  // namespace fullwatt::show
