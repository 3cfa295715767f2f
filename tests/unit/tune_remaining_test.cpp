#include <gtest/gtest.h>

#include "fullwatt/tune/remaining.hpp"

namespace fullwatt::tune {
namespace {

model::Explanation explanation() {
  model::Explanation explanation;
  explanation.info.folder = "/home/me/project";
  explanation.step_ms.mean = 100;
  const auto add = [&](const char* id, std::optional<double> gain) -> model::Finding& {
    auto& finding = explanation.findings.emplace_back();
    finding.id = id;
    finding.gain_ms = gain;
    return finding;
  };
  add("small", 4);
  add("python-per-step", 20).file = "/home/me/project/src/train.py";
  add("loader-cpu-bound", 30).file = "/usr/lib/data.py";
  add("no-figure", std::nullopt);
  add("behind", 40).consequence_of = "loader-cpu-bound";
  return explanation;
}

std::vector<std::string> ids(const std::vector<model::Finding>& findings) {
  std::vector<std::string> found;
  for (const auto& finding : findings) found.push_back(finding.id);
  return found;
}

using Ids = std::vector<std::string>;

TEST(RemainingTest, WhatIsWorthItComesByItsGain) {
  const auto found = remaining(explanation());
  EXPECT_EQ(ids(found), (Ids{"loader-cpu-bound", "python-per-step"}));
  EXPECT_EQ(found[0].file, "/usr/lib/data.py");
  EXPECT_EQ(found[1].file, "src/train.py") << "as the user calls it";
}

TEST(RemainingTest, WhatAFixShouldHaveMendedAndDidNotIsLeftOut) {
  const auto with = [](const char* fix, bool kept, std::optional<double> after_ms) {
    model::TriedFix tried;
    tried.fix.id = fix;
    tried.kept = kept;
    tried.before_ms = 100;
    tried.after_ms = after_ms;
    auto found = remaining(explanation());
    drop_disproved(found, {tried});
    return ids(found);
  };
  EXPECT_EQ(with("sample-cache", false, 99), Ids{"python-per-step"});
  EXPECT_EQ(with("sample-cache", false, std::nullopt), (Ids{"loader-cpu-bound", "python-per-step"}))
      << "it was refused";
  EXPECT_EQ(with("sample-cache", true, 80), (Ids{"loader-cpu-bound", "python-per-step"})) << "so much is left";
}

}  // namespace
}  // namespace fullwatt::tune
