#include <algorithm>
#include <filesystem>
#include <ostream>
#include <set>
#include <string>

#include "catalog/catalog.hpp"
#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/diagnose.hpp"
#include "fullwatt/doctor/probe/examine.hpp"
#include "fullwatt/doctor/probe/raw.hpp"
#include "fullwatt/show/words.hpp"

namespace fullwatt::doctor {
namespace {

using Ids = std::set<std::string>;
using model::Diagnosis;
using model::Severity;

/// A folder of tests/patients.
struct Patient {
  std::string name;

  friend void PrintTo(const Patient& patient, std::ostream* out) { *out << patient.name; }
};

std::vector<Patient> patients() {
  std::vector<Patient> all;
  for (const auto& entry : std::filesystem::directory_iterator(FULLWATT_PATIENTS)) {
    if (entry.is_directory()) all.push_back({entry.path().filename().string()});
  }
  std::ranges::sort(all, {}, &Patient::name);
  return all;
}

Ids ids_from(const Diagnosis& diagnosis, Severity least) {
  Ids ids;
  for (const auto& finding : diagnosis.findings) {
    if (finding.severity >= least) ids.insert(finding.id);
  }
  return ids;
}

std::set<std::string> placeholders(std::string_view text) {
  std::set<std::string> names;
  for (auto open = text.find('{'); open != std::string_view::npos; open = text.find('{', open + 1)) {
    names.emplace(text.substr(open + 1, text.find('}', open) - open - 1));
  }
  return names;
}

/// What a reader would see instead of a fact that the rule did not give.
std::set<std::string> unfilled(const model::Finding& finding, catalog::Language language) {
  const auto* entry = catalog::find(finding.id);
  auto names = placeholders(entry->title.in(language));
  names.merge(placeholders(entry->cause.in(language)));
  const auto words = show::render(finding, language);
  auto shown = words.title + words.cause;
  for (std::size_t i = 0; i < words.remedy.size(); ++i) {
    names.merge(placeholders(entry->remedy[i].text.in(language)));
    names.merge(placeholders(entry->remedy[i].run));
    shown += words.remedy[i].text + words.remedy[i].run;
  }
  std::erase_if(names, [&](const std::string& name) { return !base::contains(shown, "<" + name + ">"); });
  return names;
}

class PatientTest : public testing::TestWithParam<Patient> {
 protected:
  void SetUp() override {
    auto raw = load_raw(std::string(FULLWATT_PATIENTS) + "/" + GetParam().name);
    ASSERT_TRUE(raw) << raw.error().message;
    raw_ = *std::move(raw);
    diagnosis_ = diagnose(examine(replay(raw_), raw_.target));
  }

  RawMachine raw_;
  Diagnosis diagnosis_;
};

TEST_P(PatientTest, IsDiagnosedAsExpected) {
  EXPECT_EQ(diagnosis_.root_cause, raw_.expect.root_cause);
  EXPECT_EQ(ids_from(diagnosis_, Severity::warning), Ids(raw_.expect.findings.begin(), raw_.expect.findings.end()));
  const auto all = ids_from(diagnosis_, Severity::info);
  for (const auto& note : raw_.expect.notes) EXPECT_TRUE(all.contains(note)) << note << " is missing";
  for (const auto& finding : diagnosis_.findings) {
    EXPECT_FALSE(finding.evidence.empty()) << finding.id << " without evidence";
    EXPECT_EQ(unfilled(finding, catalog::Language::en), Ids{}) << finding.id;
    EXPECT_EQ(unfilled(finding, catalog::Language::zh), Ids{}) << finding.id;
  }
  for (const auto& check : diagnosis_.checks)
    EXPECT_NE(check.status, model::CheckResult::Status::broken) << check.id << ": " << check.reason;
}

std::string test_name(const testing::TestParamInfo<Patient>& info) {
  auto name = info.param.name;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, PatientTest, testing::ValuesIn(patients()), test_name);

TEST(PatientsTest, EveryExpectedIdIsInTheCatalogue) {
  ASSERT_FALSE(patients().empty());
  for (const auto& patient : patients()) {
    const auto raw = load_raw(std::string(FULLWATT_PATIENTS) + "/" + patient.name);
    ASSERT_TRUE(raw) << patient.name << ": " << raw.error().message;
    auto ids = raw->expect.findings;
    ids.insert(ids.end(), raw->expect.notes.begin(), raw->expect.notes.end());
    if (!raw->expect.root_cause.empty()) ids.push_back(raw->expect.root_cause);
    for (const auto& id : ids) EXPECT_NE(catalog::find(id), nullptr) << patient.name << " expects " << id;
  }
}

TEST(PatientsTest, EveryEntryThatAMachineOrALogCanShowHasAPatient) {
  Ids shown;
  for (const auto& patient : patients()) {
    const auto raw = load_raw(std::string(FULLWATT_PATIENTS) + "/" + patient.name);
    ASSERT_TRUE(raw) << patient.name << ": " << raw.error().message;
    for (const auto& list : {raw->expect.findings, raw->expect.notes}) shown.insert(list.begin(), list.end());
  }
  for (const auto& entry : catalog::entries()) {
    if ((entry.needs & ~(catalog::kLoad | catalog::kRun)) != 0) {
      EXPECT_TRUE(shown.contains(std::string(entry.id))) << entry.id << " has no patient";
    }
  }
}

}  // namespace
}  // namespace fullwatt::doctor
