#include <gtest/gtest.h>

#include "fullwatt/tune/search.hpp"

namespace fullwatt::tune {
namespace {

Candidate candidate(const std::string& id) {
  return {{id, {}, std::nullopt}, "because"};
}

/// A program whose step is 100 ms, and shorter by a factor for each fix.
class Program {
 public:
  explicit Program(std::map<std::string, double> factors) : factors_(std::move(factors)) {}

  model::Trial operator()(const model::Plan& plan) {
    ++starts;
    model::Trial trial;
    double ms = 100;
    for (const auto& fix : plan.fixes) {
      ms *= factors_.at(fix.id);
      trial.fixes.push_back({fix.id, fix.id == refused ? "refused" : "in-force", "as planned", {}});
      if (fix.id == broken) trial.failure = "exit code 1";
    }
    trial.step_ms.assign(10, ms);
    return trial;
  }

  std::string refused;
  std::string broken;
  int starts = 0;

 private:
  std::map<std::string, double> factors_;
};

model::Tuning search_in(Program& program, const std::vector<Candidate>& all, const SearchLimits& limits = {}) {
  return search(all, [&](const model::Plan& plan) { return program(plan); }, limits, [](const auto&) {});
}

TEST(TuneSearchTest, WhatMakesStepsShorterIsKeptAndTheRestIsNamed) {
  Program program({{"bf16", 0.5}, {"channels-last", 1.1}, {"fused-optimizer", 0.9}});
  const auto tuning = search_in(program, {candidate("bf16"), candidate("channels-last"), candidate("fused-optimizer")});
  ASSERT_EQ(tuning.plan.fixes.size(), 2U);
  EXPECT_EQ(tuning.plan.fixes[0].id, "bf16");
  EXPECT_NEAR(*tuning.plan.fixes[0].speedup, 2, 1e-9);
  EXPECT_EQ(tuning.plan.fixes[1].id, "fused-optimizer");
  EXPECT_NEAR(tuning.after_ms, 45, 1e-9);
  EXPECT_EQ(tuning.tried[1].reason, "no faster");
  EXPECT_EQ(program.starts, 4);
}

TEST(TuneSearchTest, AFixThatIsNotInForceOrBreaksTheProgramIsDropped) {
  Program program({{"bf16", 0.5}, {"compile", 0.1}});
  program.refused = "bf16";
  program.broken = "compile";
  const auto tuning = search_in(program, {candidate("bf16"), candidate("compile")});
  EXPECT_TRUE(tuning.plan.fixes.empty());
  EXPECT_EQ(tuning.tried[0].reason, "as planned");
  EXPECT_EQ(tuning.tried[1].reason, "exit code 1");
}

TEST(TuneSearchTest, WhatCannotStandBesideAKeptFixIsNotTried) {
  Program program({{"sample-cache", 0.5}, {"loader-workers", 0.5}});
  const auto tuning = search_in(program, {candidate("sample-cache"), candidate("loader-workers")});
  EXPECT_EQ(tuning.plan.fixes.size(), 1U);
  EXPECT_EQ(tuning.tried[1].reason, "not beside sample-cache");
  EXPECT_EQ(program.starts, 2);
}

TEST(TuneSearchTest, TheStartsAreBounded) {
  Program program({{"bf16", 0.5}, {"compile", 0.5}});
  const auto tuning = search_in(program, {candidate("bf16"), candidate("compile")}, {.starts = 2});
  EXPECT_EQ(program.starts, 2);
  EXPECT_EQ(tuning.plan.fixes.size(), 1U);
  EXPECT_EQ(tuning.tried[1].reason, "there was no time left");
}

TEST(TuneSearchTest, WhoeverWantsTheBestSoFarGetsIt) {
  Program program({{"bf16", 0.5}, {"compile", 0.5}});
  const auto tuning =
      search_in(program, {candidate("bf16"), candidate("compile")}, {.is_over = [&] { return program.starts >= 2; }});
  EXPECT_EQ(tuning.plan.fixes.size(), 1U);
}

TEST(TuneSearchTest, AProgramThatDoesNotRunIsToldAsSuch) {
  const auto failing = [](const model::Plan&) {
    model::Trial trial;
    trial.failure = "exit code 2: no such file";
    return trial;
  };
  const std::vector<Candidate> all{candidate("bf16")};
  EXPECT_EQ(search(all, failing, {}, [](const auto&) {}).failure, "exit code 2: no such file");
}

}  // namespace
}  // namespace fullwatt::tune
