// A saved machine of unknown origin, all the way: read, examined, diagnosed and shown.

#include <cstdint>
#include <string>

#include "tests/fuzz/require.hpp"

#include "fullwatt/doctor/diagnose.hpp"
#include "fullwatt/doctor/probe/examine.hpp"
#include "fullwatt/doctor/probe/raw.hpp"
#include "fullwatt/doctor/redact.hpp"
#include "fullwatt/doctor/select.hpp"
#include "fullwatt/show/doctor.hpp"
#include "fullwatt/show/select.hpp"

using namespace fullwatt;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto raw = doctor::parse_raw(std::string(reinterpret_cast<const char*>(data), size));
  if (!raw) {
    REQUIRE(!raw.error().message.empty());
    return 0;
  }
  show::DoctorReport report;
  report.machine = doctor::examine(doctor::replay(*raw), raw->target);
  report.diagnosis = doctor::diagnose(report.machine);
  for (const auto& check : report.diagnosis.checks) REQUIRE(check.status != model::CheckResult::Status::broken);
  REQUIRE(show::doctor_text(report, {.color = false, .unicode = true, .width = 80}, true).find('\x1b') ==
          std::string::npos);
  REQUIRE(show::doctor_html(report, catalog::Language::zh).find("<script") == std::string::npos);
  REQUIRE(show::doctor_markdown(report, catalog::Language::en).find('\x1b') == std::string::npos);
  REQUIRE(model::Json::accept(model::dump(show::doctor_json(report, catalog::Language::en))));
  REQUIRE(!show::select_text(doctor::select_gpu(report.machine), {}).empty());
  const auto yaml = doctor::Redactor(*raw)(doctor::raw_to_yaml(*raw));
  REQUIRE(!yaml.empty());
  return 0;
}
