#include "catalog/fixes.hpp"
#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fullwatt/tune/plan_file.hpp"

namespace fullwatt::tune {
namespace {

constexpr const char* kPlan = R"(version: 1
made_for: {torch: "2.11", gpu: "9.0"}
fixes:
  - id: loader-workers
    count: 8
    speedup: 1.5
  - id: bf16
  - id: compile
    mode: reduce-overhead
    dynamic: false
)";

std::string refused(const std::string& text) {
  const auto plan = parse_plan(text);
  return plan ? "accepted" : plan.error().message;
}

TEST(TunePlanTest, FixesStandInTheCataloguesOrderWithTheirSettings) {
  const auto plan = parse_plan(kPlan);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->made_for.torch, "2.11");
  ASSERT_EQ(plan->fixes.size(), 3U);
  EXPECT_EQ(plan->fixes[0].id, "bf16");
  EXPECT_EQ(plan->fixes[1].settings.at("mode"), "reduce-overhead");
  EXPECT_EQ(plan->fixes[2].settings.at("count"), "8");
  EXPECT_EQ(plan->fixes[2].speedup, 1.5);
}

TEST(TunePlanTest, WhatIsWrittenIsReadAsTheSame) {
  const auto plan = parse_plan(kPlan);
  ASSERT_TRUE(plan);
  const auto again = parse_plan(plan_to_yaml(*plan));
  ASSERT_TRUE(again) << again.error().message << "\n" << plan_to_yaml(*plan);
  EXPECT_EQ(*again, *plan);
}

TEST(TunePlanTest, TheAgentGetsTypedSettings) {
  const auto json = nlohmann::json::parse(plan_for_agent(*parse_plan(kPlan)));
  EXPECT_EQ(json["made_for"]["torch"], "2.11");
  EXPECT_EQ(json["fixes"][0], (nlohmann::json{{"id", "bf16"}}));
  EXPECT_EQ(json["fixes"][1]["dynamic"], false);
  EXPECT_EQ(json["fixes"][2]["count"], 8);
}

TEST(TunePlanTest, MistakesAreNamedWithTheirLine) {
  EXPECT_EQ(refused("version: 1\nfixes:\n  - id: bf61\n"), "line 3: unknown fix 'bf61'; did you mean 'bf16'?");
  EXPECT_EQ(refused("version: 1\nfixes:\n  - id: threads\n    cuont: 3\n"),
            "line 4: unknown key 'cuont'; did you mean 'count'?");
  EXPECT_EQ(refused("version: 1\nfixes:\n  - id: threads\n"), "line 3: the fix 'threads' needs 'count'");
  EXPECT_EQ(refused("version: 1\nfixes:\n  - id: threads\n    count: -1\n"),
            "line 4: count must be a whole number from 0 to 4096, not '-1'");
  EXPECT_EQ(refused("version: 1\nfixes:\n  - {id: compile, dynamic: maybe}\n"),
            "line 3: dynamic must be true or false, not 'maybe'");
  EXPECT_EQ(refused("version: 1\nfixes:\n  - id: bf16\n  - id: bf16\n"), "line 4: the fix 'bf16' stands twice");
  EXPECT_EQ(refused("version: 1\nfixes:\n  - {id: sample-cache, gigabytes: 1}\n  - {id: loader-workers, count: 2}\n"),
            "line 4: the fixes 'loader-workers' and 'sample-cache' cannot stand beside each other");
  EXPECT_EQ(refused("version: 2\nfixes: []\n"), "line 1: a plan of version 1 is needed");
  EXPECT_EQ(refused("fixes: []\n"), "line 1: a plan of version 1 is needed");
  EXPECT_EQ(refused("version: 1\nfixes: 7\n"), "line 1: 'fixes' must be a list");
  EXPECT_EQ(refused("version: 1\nfixes: []\nfixes: []\n"), "line 3: the key 'fixes' stands twice");
  EXPECT_EQ(refused("version: 1\nfixes:\n  - bf16\n"), "line 3: a fix needs an 'id'");
  EXPECT_EQ(refused("version: 1\nfixes:\n  - {id: bf16, speedup: fast}\n"),
            "line 3: speedup must be a number above 0, not 'fast'");
  EXPECT_NE(refused("[1, 2"), "accepted");
  EXPECT_NE(refused(""), "accepted");
}

TEST(TunePlanTest, AFileThatIsNotThereOrTooLargeIsRefused) {
  const tests::TempFolder folder;
  EXPECT_EQ(read_plan(folder.path() + "/none.yaml").error().kind, base::Error::Kind::not_found);
  folder.write("large.yaml", std::string(2 << 20, '#'));
  EXPECT_TRUE(read_plan(folder.path() + "/large.yaml").error().message.ends_with("is too large for a plan"));
}

TEST(TunePlanTest, TheAllocatorsSettingsJoinTheUsersOwn) {
  base::Environment environment{{"PYTORCH_ALLOC_CONF", "max_split_size_mb:64"}};
  set_environment(*parse_plan("version: 1\nfixes:\n  - {id: allocator, settings: 'expandable_segments:True'}\n"),
                  environment);
  EXPECT_EQ(environment["PYTORCH_ALLOC_CONF"], "max_split_size_mb:64,expandable_segments:True");
  EXPECT_EQ(environment["PYTORCH_CUDA_ALLOC_CONF"], "expandable_segments:True");
}

TEST(TunePlanTest, EveryFixOfTheCatalogueCanStandInAPlan) {
  ASSERT_GE(catalog::fixes().size(), 14U);
  for (const auto& fix : catalog::fixes()) {
    model::Plan plan;
    plan.fixes.push_back({std::string(fix.id), {}, std::nullopt});
    for (const auto& setting : fix.settings) {
      const auto* value = setting.kind == catalog::FixSetting::Kind::flag ? "true" : "4";
      plan.fixes.back().settings[std::string(setting.name)] = value;
    }
    const auto again = parse_plan(plan_to_yaml(plan));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, plan);
  }
}

}  // namespace
}  // namespace fullwatt::tune
