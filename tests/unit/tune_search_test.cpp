#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "fullwatt/tune/search.hpp"

namespace fullwatt::tune {
namespace {

Candidate candidate(const std::string& id, std::optional<double> predicted_ms = std::nullopt) {
  return {{id, {}, std::nullopt}, "because", {predicted_ms, {}, {}}};
}

/// A program whose step is 100 ms, and shorter by a factor for each fix.
class Program {
 public:
  Program(std::map<std::string, double> factors, std::vector<Candidate> candidates)
      : factors_(std::move(factors)), candidates_(std::move(candidates)) {}

  Look look(const model::Plan& plan) {
    ++looks;
    const auto shown =
        one_by_one ? std::min<std::size_t>(static_cast<std::size_t>(looks), candidates_.size()) : candidates_.size();
    return {measure(plan),
            {candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(shown)},
            {{std::to_string(plan.fixes.size()), {}}}};
  }

  model::Trial measure(const model::Plan& plan) {
    ++starts;
    model::Trial trial;
    double ms = 100;
    for (const auto& fix : plan.fixes) {
      ms *= factor(fix.id, plan);
      trial.fixes.push_back({fix.id, state_of(fix.id), "as planned", {}});
      if (fix.id == broken) trial.failure = "exit code 1";
    }
    trial.step_ms.assign(10, ms);
    return trial;
  }

  model::Trial in_turns(const Turning& turning) {
    ++starts;
    was_short.push_back(turning.program_is_short);
    model::Trial trial;
    auto plan = turning.plan;
    double ms = measured_ms(plan);
    EXPECT_NEAR(turning.step_ms, ms, 1e-9);
    for (const auto& fix : turning.fixes) {
      if (trial.turns.size() == ends_after) return trial;
      turned.push_back(fix.id);
      trial.fixes.push_back({fix.id, state_of(fix.id), "as planned", {}});
      trial.turns.push_back({.id = fix.id});
      if (is_brief && !turning.program_is_short) return trial;
      if (fix.id == broken) {
        trial.failure = "exit code 1";
        return trial;
      }
      if (state_of(fix.id) != "in-force" && fix.id != gives_up) continue;
      const auto with = ms * factor(fix.id, plan);
      const auto slow_ms = pace_in_turns * ms;
      const auto slow_with = pace_in_turns * with;
      trial.turns.back() = {fix.id, with < ms, {slow_ms, slow_ms, slow_ms}, {slow_with, slow_with, slow_with}, 0};
      if (with < ms) {
        plan.fixes.push_back(fix);
        ms = with;
      }
    }
    if (!again.empty()) {
      const auto turn = std::ranges::find(trial.turns, again, &model::Turn::id);
      const auto with = ms * factor(again, plan);
      *turn = {again, with < ms, {ms, ms, ms}, {with, with, with}, 0};
      std::rotate(turn, turn + 1, trial.turns.end());
    }
    return trial;
  }

  std::string refused;
  std::string waiting;   ///< the program ends before it is applied
  std::string gives_up;  ///< by itself, while it is measured
  std::string broken;
  std::string opener;  ///< nothing else pays without it
  std::string again;   ///< has another turn after all others
  std::vector<std::string> turned;
  double pace_in_turns = 1;      ///< what the machine makes of a step while turns are taken
  bool one_by_one = false;       ///< each look shows one candidate more
  std::size_t ends_after = 100;  ///< turns of one start
  bool is_brief = false;         ///< it ends before a single fix has had its turns, unless these are short
  std::vector<bool> was_short;   ///< as each start with turns was told
  int starts = 0;
  int looks = 0;

 private:
  std::string state_of(const std::string& fix) const {
    return fix == refused ? "refused" : fix == waiting ? "waiting" : fix == gives_up ? "undone" : "in-force";
  }
  double measured_ms(const model::Plan& plan) {
    double ms = 100;
    for (const auto& fix : plan.fixes) ms *= factor(fix.id, plan);
    return ms;
  }
  double factor(const std::string& fix, const model::Plan& plan) const {
    const bool open = opener.empty() || fix == opener ||
                      std::ranges::find(plan.fixes, opener, &model::PlannedFix::id) != plan.fixes.end();
    return open ? factors_.at(fix) : 1;
  }

  std::map<std::string, double> factors_;
  std::vector<Candidate> candidates_;
};

model::Tuning search_in(Program& program, const SearchLimits& limits = {}) {
  return search({.look = [&](const auto& plan, const auto&) { return program.look(plan); },
                 .measure = [&](const auto& plan, const auto&) { return program.measure(plan); },
                 .in_turns = [&](const auto& turning) { return program.in_turns(turning); }},
                limits, {});
}

const model::TriedFix& entry(const model::Tuning& tuning, const std::string& id) {
  return *std::ranges::find_if(tuning.tried, [&](const auto& tried) { return tried.fix.id == id; });
}

TEST(TuneSearchTest, AFixThatGivesUpWhileItIsMeasuredSaysWhy) {
  Program program({{"cuda-graphs", 1}}, {candidate("cuda-graphs")});
  program.gives_up = "cuda-graphs";
  const auto tuning = search_in(program);
  EXPECT_FALSE(entry(tuning, "cuda-graphs").kept);
  EXPECT_EQ(entry(tuning, "cuda-graphs").reason, "as planned");  // the trial's own words
}

TEST(TuneSearchTest, AMachineThatIsSlowerWhileTurnsAreTakenDoesNotHideWhatTheyGive) {
  Program program({{"bf16", 0.5}, {"fused-optimizer", 0.9}}, {candidate("fused-optimizer"), candidate("bf16")});
  program.pace_in_turns = 3;
  const auto tuning = search_in(program, {.starts = 2});  // a look and the turns: none is left to look at the end
  EXPECT_NEAR(tuning.before_ms, 100, 1e-9);
  EXPECT_NEAR(tuning.after_ms, 45, 1e-9);
  EXPECT_NEAR(*entry(tuning, "bf16").before_ms, 100, 1e-9) << "no fix gives more than a step has";
  EXPECT_NEAR(*entry(tuning, "bf16").after_ms, 50, 1e-9);
}

TEST(TuneSearchTest, FixesThatAreLiveTakeTurnsInOneStart) {
  Program program({{"bf16", 0.5}, {"channels-last", 1.1}, {"fused-optimizer", 0.9}},
                  {candidate("fused-optimizer"), candidate("channels-last"), candidate("bf16")});
  const auto tuning = search_in(program);
  ASSERT_EQ(tuning.plan.fixes.size(), 2U);
  EXPECT_EQ(tuning.plan.fixes[0].id, "bf16");
  EXPECT_NEAR(*tuning.plan.fixes[0].speedup, 2, 1e-9);
  EXPECT_EQ(tuning.plan.fixes[1].id, "fused-optimizer");
  EXPECT_NEAR(tuning.after_ms, 45, 1e-9);
  EXPECT_EQ(entry(tuning, "channels-last").reason, "not faster beyond noise");
  EXPECT_EQ(program.turned[0], "bf16");
  EXPECT_EQ(program.looks, 2) << "what was kept changes what the others can give";
  EXPECT_LE(program.starts, 5);
}

TEST(TuneSearchTest, WhatPromisesMostIsTriedFirstAndOpensTheWay) {
  Program program({{"sample-cache", 0.2}, {"bf16", 0.5}, {"gc-freeze", 1.0}},
                  {candidate("gc-freeze", 1), candidate("bf16"), candidate("sample-cache", 80)});
  program.opener = "sample-cache";
  const auto tuning = search_in(program);
  EXPECT_NEAR(tuning.after_ms, 10, 1e-9);
  EXPECT_EQ(tuning.tried.front().fix.id, "sample-cache");
  EXPECT_EQ(tuning.plan.fixes.front().id, "bf16") << "a plan has the catalogue's order";
  EXPECT_NEAR(*entry(tuning, "sample-cache").predicted.ms, 80, 1e-9);
}

TEST(TuneSearchTest, TurnsWaitForALookAtAMendedLoaderWhileThereIsTime) {
  for (const bool late : {false, true}) {
    Program program({{"sample-cache", 0.2}, {"bf16", 0.5}}, {candidate("bf16"), candidate("sample-cache", 80)});
    int looks_at_turns = 0;
    const auto tuning = search({.look = [&](const auto& plan, const auto&) { return program.look(plan); },
                                .measure = [&](const auto& plan, const auto&) { return program.measure(plan); },
                                .in_turns =
                                    [&](const auto& turning) {
                                      looks_at_turns = program.looks;
                                      return program.in_turns(turning);
                                    }},
                               {.is_late = [&] { return late; }}, {});
    EXPECT_EQ(tuning.plan.fixes.size(), 2U);
    EXPECT_EQ(looks_at_turns, late ? 1 : 2);
  }
}

TEST(TuneSearchTest, WhatIsTriedByALookNeedsNoOtherWhenItIsKept) {
  Program program({{"sample-cache", 0.2}, {"loader-pinned", 1.0}, {"bf16", 0.5}},
                  {candidate("bf16"), candidate("loader-pinned", 0.1), candidate("sample-cache", 80)});
  const auto tuning = search_in(program);
  EXPECT_EQ(tuning.plan.fixes.size(), 2U);
  // As it is, with sample-cache, with loader-pinned, in turns, and as it is in the end.
  EXPECT_EQ(program.starts, 5);
  EXPECT_EQ(program.looks, 3);
}

TEST(TuneSearchTest, ALookAtWhatIsNotKeptDoesNotCount) {
  Program program({{"sample-cache", 1.0}, {"bf16", 0.5}}, {candidate("bf16"), candidate("sample-cache", 80)});
  const auto tuning = search_in(program);
  ASSERT_EQ(tuning.plan.fixes.size(), 1U);
  EXPECT_EQ(tuning.plan.fixes.front().id, "bf16");
  EXPECT_NEAR(*entry(tuning, "bf16").before_ms, 100, 1e-9);
}

TEST(TuneSearchTest, TurnsAreTakenAgainOnlyWhenTheLoaderWasMendedSince) {
  Program program({{"bf16", 1.0}, {"tf32", 0.5}}, {candidate("bf16"), candidate("tf32")});
  search_in(program);
  EXPECT_EQ(std::ranges::count(program.turned, "bf16"), 1);
}

TEST(TuneSearchTest, WhatHadAnotherTurnStandsOnAllOthers) {
  Program program({{"bf16", 0.5}, {"cuda-graphs", 0.6}}, {candidate("bf16"), candidate("cuda-graphs")});
  program.opener = "cuda-graphs";
  program.again = "bf16";
  const auto tuning = search_in(program);
  EXPECT_NEAR(*entry(tuning, "bf16").before_ms, 60, 1e-9);
  EXPECT_NEAR(tuning.after_ms, 30, 1e-9);
  EXPECT_EQ(tuning.tried.back().fix.id, "bf16");
}

/// What a loader takes is a small part of a long step, and a large one of a short step.
TEST(TuneSearchTest, ALoaderIsTriedAgainWhenTheStepHasBecomeMuchShorter) {
  for (const double faster : {0.5, 0.9}) {
    Program program({{"loader-workers", 0.6}, {"bf16", faster}}, {candidate("bf16"), candidate("loader-workers", 30)});
    program.opener = "bf16";
    const auto tuning = search_in(program);
    EXPECT_EQ(entry(tuning, "loader-workers").kept, faster == 0.5);
    EXPECT_EQ(tuning.plan.fixes.size(), faster == 0.5 ? 2U : 1U);
    EXPECT_NEAR(tuning.after_ms, faster == 0.5 ? 30 : 90, 1e-9);
  }
}

TEST(TuneSearchTest, WhatAKeptFixBringsIsNotTriedByItself) {
  auto workers = candidate("loader-workers", 30);
  workers.fix.settings = {{"count", "4"}, {"pinned", "true"}};
  for (const double faster : {0.5, 1.0}) {
    Program program({{"loader-workers", faster}, {"loader-pinned", 0.9}}, {workers, candidate("loader-pinned")});
    const auto tuning = search_in(program);
    ASSERT_EQ(tuning.plan.fixes.size(), 1U);
    EXPECT_EQ(tuning.plan.fixes[0].id, faster == 0.5 ? "loader-workers" : "loader-pinned");
  }
}

TEST(TuneSearchTest, AFixThatIsNotInForceIsDroppedWithItsReason) {
  Program program({{"bf16", 0.5}, {"gc-freeze", 0.5}}, {candidate("bf16"), candidate("gc-freeze")});
  program.refused = "bf16";
  const auto tuning = search_in(program);
  EXPECT_EQ(tuning.plan.fixes.size(), 1U);
  EXPECT_EQ(entry(tuning, "bf16").reason, "as planned");
}

TEST(TuneSearchTest, AFixThatTheProgramNeverReachedSaysWhatItWaitsFor) {
  Program program({{"fused-optimizer", 0.5}}, {candidate("fused-optimizer")});
  program.waiting = "fused-optimizer";
  EXPECT_EQ(entry(search_in(program), "fused-optimizer").reason, "not in force by the end: it waits as planned");
}

TEST(TuneSearchTest, OneThatBreaksTheProgramIsLeftOutAndTheOthersGoOn) {
  Program program({{"tf32", 0.5}, {"channels-last", 0.5}, {"fused-optimizer", 0.5}},
                  {candidate("tf32"), candidate("channels-last"), candidate("fused-optimizer")});
  program.broken = "channels-last";
  const auto tuning = search_in(program);
  EXPECT_EQ(tuning.plan.fixes.size(), 2U);
  EXPECT_EQ(entry(tuning, "channels-last").reason, "exit code 1");
  EXPECT_TRUE(entry(tuning, "fused-optimizer").kept);
  EXPECT_EQ(program.was_short, (std::vector{false, false}));
}

TEST(TuneSearchTest, AProgramThatEndsEarlyIsStartedAgainForTheRest) {
  Program program({{"tf32", 0.5}, {"channels-last", 0.5}, {"fused-optimizer", 0.5}},
                  {candidate("tf32"), candidate("channels-last"), candidate("fused-optimizer")});
  program.ends_after = 1;
  const auto tuning = search_in(program);
  EXPECT_EQ(tuning.plan.fixes.size(), 3U);
  EXPECT_EQ(program.was_short, (std::vector{false, true, true}));
  program.ends_after = 0;
  EXPECT_EQ(entry(search_in(program), "tf32").reason, "the program ended before it was measured");
}

TEST(TuneSearchTest, AProgramThatEndsBeforeAnyTurnIsOverGetsShorterOnes) {
  Program program({{"tf32", 0.5}, {"channels-last", 0.5}}, {candidate("tf32"), candidate("channels-last")});
  program.is_brief = true;
  EXPECT_EQ(search_in(program).plan.fixes.size(), 2U);
  EXPECT_EQ(program.was_short, (std::vector{false, true}));
}

TEST(TuneSearchTest, WhatCannotStandBesideAKeptFixIsNotTried) {
  Program program({{"sample-cache", 0.5}, {"loader-workers", 0.5}},
                  {candidate("sample-cache", 2), candidate("loader-workers", 1)});
  const auto tuning = search_in(program);
  EXPECT_EQ(tuning.plan.fixes.size(), 1U);
  EXPECT_EQ(entry(tuning, "loader-workers").reason, "not beside sample-cache");
}

/// The program's advice is the number of fixes that it had.
TEST(TuneSearchTest, AdviceIsAboutTheProgramWithTheWholePlan) {
  const auto advice_of = [](Program program, int starts) {
    const auto tuning = search_in(program, {.starts = starts});
    return tuning.advice.empty() ? "none"
                                 : tuning.advice.front().id + " of " + std::to_string(tuning.plan.fixes.size());
  };
  EXPECT_EQ(advice_of(Program({{"bf16", 1.0}}, {candidate("bf16")}), 12), "0 of 0");
  EXPECT_EQ(advice_of(Program({{"bf16", 0.5}}, {candidate("bf16")}), 12), "1 of 1");
  EXPECT_EQ(advice_of(Program({{"bf16", 0.5}}, {candidate("bf16")}), 2), "none") << "there was no start left to look";
  Program long_way({{"bf16", 0.5}, {"tf32", 0.5}, {"fused-optimizer", 0.5}},
                   {candidate("bf16"), candidate("tf32"), candidate("fused-optimizer")});
  long_way.one_by_one = true;
  EXPECT_EQ(advice_of(long_way, 12), "3 of 3") << "the last look has found something, too";
}

TEST(TuneSearchTest, TheStartsAreBounded) {
  Program program({{"gc-freeze", 0.5}, {"sample-cache", 0.5}}, {candidate("gc-freeze"), candidate("sample-cache")});
  const auto tuning = search_in(program, {.starts = 2});
  EXPECT_EQ(program.starts, 2);
  EXPECT_EQ(tuning.plan.fixes.size(), 1U);
  EXPECT_EQ(entry(tuning, "sample-cache").reason, "no start was left");
}

TEST(TuneSearchTest, WhoeverWantsTheBestSoFarGetsIt) {
  Program program({{"gc-freeze", 0.5}, {"bf16", 0.5}}, {candidate("gc-freeze"), candidate("bf16")});
  const auto tuning = search_in(program, {.why_over = [&] { return program.starts >= 2 ? "interrupted" : ""; }});
  EXPECT_EQ(tuning.plan.fixes.size(), 1U);
  EXPECT_EQ(entry(tuning, "bf16").reason, "interrupted");
  EXPECT_TRUE(entry(tuning, "bf16").is_open);
  EXPECT_FALSE(entry(tuning, "gc-freeze").is_open);
}

TEST(TuneSearchTest, AProgramThatDoesNotRunIsToldAsSuch) {
  const auto failing = [](const model::Plan&, const std::string&) {
    Look look;
    look.trial.failure = "exit code 2: no such file";
    return look;
  };
  EXPECT_EQ(search({.look = failing}, {}, {}).failure, "exit code 2: no such file");
}

TEST(TuneSearchTest, AStartIsToldWhatItIsFor) {
  Program program({{"sample-cache", 1.0}, {"loader-workers", 0.5}},
                  {candidate("sample-cache", 80), candidate("loader-workers", 40)});
  std::vector<std::string> tried;
  const auto tuning = search({.look =
                                  [&](const auto& plan, const auto& tries) {
                                    tried.push_back("look " + tries);
                                    return program.look(plan);
                                  },
                              .measure =
                                  [&](const auto& plan, const auto& tries) {
                                    tried.push_back(tries);
                                    return program.measure(plan);
                                  },
                              .in_turns = [&](const auto& turning) { return program.in_turns(turning); }},
                             {}, {});
  EXPECT_EQ(tried, (std::vector<std::string>{"look ", "look sample-cache", "loader-workers", "look "}));
}

TEST(TuneSearchTest, PairsAreComparedOneByOne) {
  model::Trial plain;
  plain.step_ms.assign(10, 10);
  auto turned = plain;
  turned.fixes = {{"bf16", "in-force", "", {}}};
  turned.turns = {{"bf16", true, {10, 40, 11}, {9, 36, 12}, 0}};  // the machine was slow meanwhile
  const auto tuning = search({.look = [&](const auto&, const auto&) { return Look{plain, {candidate("bf16")}, {}}; },
                              .measure = [&](const auto&, const auto&) { return plain; },
                              .in_turns = [&](const auto&) { return turned; }},
                             {.starts = 4}, {.worth_it = [](const auto&) {}, .tried = [](const auto&) {}});
  EXPECT_NEAR(*entry(tuning, "bf16").speedup(), 1 / 0.9, 1e-9);
}

}  // namespace
}  // namespace fullwatt::tune
