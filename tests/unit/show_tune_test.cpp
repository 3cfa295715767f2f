#include <set>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/tune_html.hpp"
#include "fullwatt/show/tune_json.hpp"
#include "fullwatt/show/tune_text.hpp"

namespace fullwatt::show {
namespace {

using base::contains;
using model::Json;

model::Tuning sample() {
  model::Tuning tuning;
  tuning.plan.made_for = {"2.11", "9.0", "Net-1", "2"};
  model::TriedFix cache;
  cache.fix = {"sample-cache", {{"gigabytes", "8"}}, 4.0};
  cache.why = "mends loader-workers-zero";
  cache.predicted.ms = 31;
  cache.kept = true;
  cache.before_ms = 40;
  cache.after_ms = 10;
  cache.once_s = 60;
  cache.before_watts = 120;
  cache.after_watts = 410;
  model::TriedFix bf16;
  bf16.fix = {"bf16", {}, 1.25};
  bf16.predicted = {{}, -1, 6.4};
  bf16.kept = true;
  bf16.before_ms = 10;
  bf16.after_ms = 8;
  model::TriedFix dropped;
  dropped.fix.id = "channels-last";
  dropped.reason = "no faster";
  dropped.before_ms = 8;
  dropped.after_ms = 8.2;
  tuning.tried = {bf16, cache, dropped};
  tuning.plan.fixes = {bf16.fix, cache.fix};
  tuning.batches = {{64, std::nullopt, 2e9, 1000}};
  tuning.before_ms = 40;
  tuning.after_ms = 8;
  tuning.samples_per_step = 32;
  tuning.gpu_before = {118, 24, 3.2e9};
  tuning.gpu_after = {438, 93, std::nullopt};
  tuning.source = {{"train.py", "--- train.py\n+++ train.py\n@@ -1,1 +1,1 @@\n-a\n+b\n"}};
  tuning.in_source = {"bf16"};
  tuning.advice = {{"several", {{"share", "25 %"}, {"value", "3.0"}, {"limit", "24"}, {"count", "4"}}}};
  model::Finding slow;
  slow.id = "python-per-step";
  slow.facts = {{"place", "train.py:15"}, {"ms", "0.88"}};
  slow.file = "train.py";
  slow.line = 15;
  slow.gain_ms = 0.88;
  tuning.remaining = {slow};
  tuning.speed = {4.9, 4.7, 5.1, 5};
  tuning.loss = {.verdict = model::LossProof::Verdict::not_worse, .margin = 0.1, .pairs = 5, .steps = 100};
  tuning.pairs = {{0, 40, 8, {2, 1.5, 1}, {2, 1.4, 1.1}}, {1, 41, 8.5, {2.2, 1.6, 1.2}, {}}};
  return tuning;
}

TEST(TuneTextTest, WhatRemainsIsTheUsersToMend) {
  const auto text = tune_text(sample(), Style{});
  for (const auto* part :
       {"What only you can change", "train.py:15", "saves 0.88 of 8 ms a step", "fullwatt explain python-per-step"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_NE(tune_html(sample(), Style{}).find("fullwatt explain python-per-step"), std::string::npos);
  auto between = sample();
  between.remaining.front().gain_ms = 20;
  between.remaining.front().between_steps = true;
  EXPECT_NE(tune_text(between, Style{}).find("saves 20 ms a step, between the steps"), std::string::npos);
  auto none = sample();
  none.remaining.clear();
  EXPECT_EQ(tune_text(none, Style{}).find("What only you can change"), std::string::npos);
}

TEST(TuneTextTest, BeforeAfterTheFixesByGainAndTheProofAreThere) {
  const auto text = tune_text(sample(), Style{});
  for (const auto* part : {"ms a step",
                           "samples/s",
                           "4,000",
                           "step 2,000",
                           "4.90×",
                           "4.70×–5.10×",
                           "no faster",
                           "-1 to 6.4",
                           "watts",
                           "118",
                           "438",
                           "highest",
                           "GPU utilisation %",
                           "93",
                           "3.2",
                           "–",
                           "+290",
                           "  -a\n  +b\n",
                           "by hand: sample-cache;",
                           "busy 25 % of the time and uses 3.0 of 24 GiB: 4 such trainings"})
    EXPECT_TRUE(contains(text, part)) << part << "\n" << text;
  EXPECT_LT(text.find("sample-cache"), text.find("bf16")) << "what gives most comes first";
}

TEST(TuneTextTest, ACaveatStandsBelowWhatIsKeptInThePlanAndInJson) {
  auto tuning = sample();
  EXPECT_EQ(tune_json(tuning)["tried"][0]["caveat"], "");
  tuning.tried[0].caveat = "statistics change";
  tuning.tried[2].caveat = "of no interest";
  const auto text = tune_text(tuning, Style{});
  EXPECT_TRUE(contains(text, "  bf16: statistics change\n")) << text;
  EXPECT_FALSE(contains(text, "of no interest")) << text;
  EXPECT_TRUE(contains(base::join(evidence(tuning), "\n"), "statistics change"));
  EXPECT_TRUE(contains(tune_html(tuning, Style{}), "; statistics change"));
  EXPECT_EQ(tune_json(tuning)["tried"][0]["caveat"], "statistics change");
}

TEST(TuneTextTest, WithoutAGpuNothingIsSaidOfOne) {
  auto tuning = sample();
  tuning.gpu_before = tuning.gpu_after = {};
  EXPECT_FALSE(contains(tune_text(tuning, Style{}), "watts"));
}

TEST(TuneTextTest, WhoeverStopsGetsTheBestSoFarAndIsToldThatItIsNotProved) {
  auto tuning = sample();
  tuning.speed = {};
  tuning.interrupted = true;
  const auto text = tune_text(tuning, Style{});
  EXPECT_TRUE(contains(text, "The best plan so far is not proved: 40 ms a step before, 8 ms after")) << text;
  EXPECT_FALSE(contains(text, "Proof"));
  EXPECT_TRUE(contains(evidence(tuning).front(), "NOT PROVED"));
}

TEST(TuneTextTest, APlanWhoseProofFailedIsNotCalledKept) {
  auto tuning = sample();
  for (auto& tried : tuning.tried) tried.kept = false;
  for (auto& tried : tuning.tried) tried.reason = "in the proof the loss is worse";
  tuning.plan.fixes.clear();
  tuning.loss.verdict = model::LossProof::Verdict::worse;
  const auto text = tune_text(tuning, Style{});
  EXPECT_TRUE(contains(text, "the proof failed: it is not written")) << text;
  EXPECT_TRUE(contains(text, "the loss is worse over 100 steps")) << text;
  EXPECT_FALSE(contains(text, "Kept")) << text;
  EXPECT_FALSE(contains(tune_html(tuning, Style{}), "--write"));
}

TEST(TuneTextTest, APlanWithoutAProofSaysSo) {
  auto tuning = sample();
  tuning.speed = {};
  EXPECT_TRUE(contains(tune_text(tuning, Style{}), "No proof was asked for"));
  EXPECT_TRUE(contains(evidence(tuning).front(), "no proof was asked for"));
}

TEST(TuneTextTest, WhatTheProgramHasNoRoomWithoutIsNamed) {
  auto tuning = sample();
  tuning.needed.fixes = {{"accumulation", {{"parts", "4"}}, std::nullopt}};
  tuning.plan.fixes.push_back(tuning.needed.fixes.front());
  EXPECT_TRUE(contains(tune_text(tuning, Style{}), "With accumulation parts=4 it has"));
  EXPECT_TRUE(contains(tune_text(tuning, Style{}), "(fixes: 2)")) << "those that make it faster";
  EXPECT_TRUE(contains(evidence(tuning).front(), "accumulation parts=4"));
  tuning.plan = tuning.needed;
  tuning.speed = {};
  const auto text = tune_text(tuning, Style{});
  EXPECT_TRUE(contains(text, "accumulation parts=4")) << text;
  EXPECT_FALSE(contains(text, "as fast")) << text;
  EXPECT_TRUE(contains(tune_html(tuning, Style{}), "accumulation parts=4"));
}

TEST(TuneTextTest, PlainAsciiWhereTheTerminalKnowsNoMore) {
  for (const unsigned char c : tune_text(sample(), Style{.unicode = false})) EXPECT_LT(c, 128);
  for (const auto& line : evidence(sample())) EXPECT_FALSE(contains(line, "?")) << line;
}

TEST(TuneTextTest, ChineseHasItsWords) {
  EXPECT_TRUE(contains(tune_text(sample(), Style{.language = catalog::Language::zh}), "前后对比"));
}

TEST(TuneHtmlTest, ThePageHasTheProofTheLossesAndTheSource) {
  const auto page = tune_html(sample(), Style{});
  for (const auto* part :
       {"With the plan this training is 4.90× as fast", "<dt>samples/s</dt><dd>4,000<small>was 800</small>",
        "<code>sample-cache</code>", "<td class=\"n\">+290</td>", "<path class=\"plain\" d=\"M0.0 ",
        "<path class=\"plan\" d=\"M0.0 ", "no faster", "<span class=\"add\">+b</span>", "4 such trainings"})
    EXPECT_TRUE(contains(page, part)) << part << "\n" << page;
  EXPECT_FALSE(contains(page, "://")) << "it loads nothing";
}

TEST(TuneHtmlTest, NamesAreOnlyText) {
  auto tuning = sample();
  tuning.tried[2].reason = "<script>alert(1)</script>";
  tuning.source[0].diff = "+<img src=x>\n";
  const auto page = tune_html(tuning, Style{});
  EXPECT_FALSE(contains(page, "<script>"));
  EXPECT_FALSE(contains(page, "<img"));
}

TEST(TuneTextTest, WhatThereWasNoTimeForIsSaidBesideAPlan) {
  auto tuning = sample();
  EXPECT_FALSE(contains(tune_text(tuning, Style{}), "Not tried"));
  tuning.tried[2].is_open = true;
  EXPECT_TRUE(contains(tune_text(tuning, Style{}), "Not tried, for want of time or starts: 1"));
  EXPECT_TRUE(contains(tune_html(tuning, Style{}), "Not tried, for want of time or starts: 1"));
  tuning.interrupted = true;
  EXPECT_FALSE(contains(tune_text(tuning, Style{}), "Not tried")) << "somebody wanted no more";
}

TEST(TuneHtmlTest, WithoutAPlanOrAProgramItSaysWhy) {
  model::Tuning nothing;
  EXPECT_TRUE(contains(tune_html(nothing, Style{}), "No fix applies to this training"));
  nothing.plan.made_for.gpu = "cpu";
  EXPECT_TRUE(contains(tune_text(nothing, Style{}), "It trains on the CPU"));
  nothing.tried = {sample().tried[2]};
  EXPECT_TRUE(contains(tune_html(nothing, Style{}), "None of the fixes that apply (1)"));
  EXPECT_TRUE(contains(tune_text(nothing, Style{}), "no faster")) << "why it was dropped";
  nothing.tried.push_back(nothing.tried[0]);
  nothing.tried[1].is_open = true;
  EXPECT_TRUE(contains(tune_text(nothing, Style{}), "that apply (1)")) << "of the other nothing is known";
  EXPECT_TRUE(contains(tune_text(nothing, Style{}), "Not tried, for want of time or starts: 1"));
  nothing.tried.erase(nothing.tried.begin());
  EXPECT_TRUE(contains(tune_text(nothing, Style{}), "There was no time to try the fixes that apply (1)"));
  nothing.interrupted = true;
  EXPECT_TRUE(contains(tune_text(nothing, Style{}), "Stopped before any fix"));
  nothing.failure = "exit code 1";
  EXPECT_TRUE(contains(tune_html(nothing, Style{}), "exit code 1"));
}

TEST(TuneJsonTest, TheSchemaNamesEveryFieldAndNoOther) {
  const auto schema = Json::parse(tests::read_all(std::string(FULLWATT_SOURCE) + "/docs/tune.schema.json"));
  auto json = tune_json(sample());
  EXPECT_EQ(json["tried"][1]["steps_to_pay"], 2000);
  EXPECT_EQ(json["tried"][1]["priority"], "highest");
  EXPECT_FALSE(json["tried"][2].contains("priority")) << "it was dropped";
  json["tried"][1].erase("steps_to_pay");  // these may be missing
  for (auto& tried : json["tried"]) tried.erase("priority");
  const auto same = [](const Json& value, const Json& part) {
    std::set<std::string> keys;
    for (const auto& [name, item] : value.items()) keys.insert(name);
    EXPECT_EQ(keys, part.at("required").get<std::set<std::string>>());
  };
  const auto& parts = schema["properties"];
  same(json, schema);
  const auto& plan = schema["$defs"]["plan"];
  same(json["plan"], plan);
  same(json["needed"], plan);
  same(json["plan"]["made_for"], plan["properties"]["made_for"]);
  same(json["tried"][1], parts["tried"]["items"]);
  same(json["tried"][1]["predicted"], parts["tried"]["items"]["properties"]["predicted"]);
  same(json["batches"][0], parts["batches"]["items"]);
  same(json["speed"], parts["speed"]);
  same(json["loss"], parts["loss"]);
  same(json["pairs"][0], parts["pairs"]["items"]);
  same(json["source"][0], parts["source"]["items"]);
  same(json["advice"][0], parts["advice"]["items"]);
  same(json["remaining"][0], parts["remaining"]["items"]);
  same(json["gpu_before"], schema["$defs"]["work"]);
  EXPECT_EQ(json["loss"]["verdict"], "not-worse");
  EXPECT_EQ(json["proved"], true);
}

}  // namespace
}  // namespace fullwatt::show
