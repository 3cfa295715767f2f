#include <set>

#include "tests/support/trainings.hpp"
#include <gtest/gtest.h>

#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/rules/rules.hpp"

namespace fullwatt::explain {
namespace {

using namespace fullwatt::tests;  // NOLINT: the vocabulary of these tests
using model::Phase;

TEST(RulesTest, EveryRuleHasItsWordsAndEveryWordItsRule) {
  std::set<std::string_view> ids;
  for (const auto& rule : all_rules()) {
    EXPECT_NE(catalog::find(rule.id), nullptr) << rule.id;
    EXPECT_TRUE(ids.insert(rule.id).second) << rule.id << " stands twice";
  }
  for (const auto& entry : catalog::entries()) {
    if ((entry.needs & catalog::kRun) != 0) {
      EXPECT_TRUE(ids.contains(entry.id)) << entry.id << " has no rule";
    }
  }
  EXPECT_GE(ids.size(), 55U);
}

TEST(RulesTest, APromisedGainHasASource) {
  for (const auto& entry : catalog::entries()) {
    EXPECT_EQ(entry.gain.cautious < 1, !entry.gain.source.empty()) << entry.id;
    EXPECT_LE(entry.gain.best, entry.gain.cautious) << entry.id;
  }
}

TEST(RulesTest, AHealthyTrainingHasNoFinding) {
  const auto explanation = explain(training(healthy_script()).build());
  EXPECT_EQ(ids_of(explanation), "");
  EXPECT_EQ(explanation.verdict, "");
}

TEST(RulesTest, AHealthyTrainingOnTheCpuHasNoFinding) {
  Said said;
  said.gpu = R"("index":0)";
  said.model = R"("class":"Net","parameters":1000,"devices":{"cpu":1000})";
  said.device_check = R"("parameters":{"cpu":2},"inputs":{"cpu":1},"consistent":true)";
  said.autocast = "";
  RunBuilder builder;
  builder.without_gpu_records();
  builder.fact("model", object(R"("id":1,)" + said.model)).fact("device_check", object(said.device_check));
  builder.train(Script().data(12, 0.1).library(15, 20).begin(Phase::backward, 18).library(18, 30).end());
  EXPECT_EQ(ids_of(explain(builder.build())), "");
}

TEST(RulesTest, ARunWithoutStepsOrWithoutAnythingHasNoFinding) {
  EXPECT_EQ(ids_of(explain(model::Run{})), "");
  RunBuilder builder;
  say(builder, {});
  EXPECT_EQ(ids_of(explain(builder.build())), "");
}

TEST(RulesTest, FindingsStandByGainAndGainsStayWithinTheStep) {
  auto script = Script().data(12, 30).python(14, 12).launches(8, 15, "ampere_sgemm_128x64_tn", 4);
  Said said;
  said.loader = R"("batch_size":64,"num_workers":0)";
  said.settings = R"("matmul.allow_tf32":false,"anomaly_detection":true)";
  const auto explanation = explain(training(finish(script), said).build());
  ASSERT_GE(explanation.findings.size(), 3U) << ids_of(explanation);
  double before = explanation.step_ms.mean;
  for (const auto& finding : explanation.findings) {
    EXPECT_LE(finding.gain_ms.value_or(0), before + 1e-9) << finding.id;
    EXPECT_LE(finding.charged_ms.value_or(0), explanation.step_ms.mean + 1e-9) << finding.id;
    before = finding.gain_ms.value_or(0);
    expect_complete(finding);
  }
}

TEST(PythonRulesTest, ALineThatRunsPythonIsNamedWithItsPrice) {
  auto script = Script().data(12, 0.02).python(14, 60).launches(8, 15, kConvolution, 2);
  const auto finding = expect_found(training(finish(script, 2)), "python-per-step");
  EXPECT_EQ(finding.line, 14);
  EXPECT_EQ(finding.file, kTrainFile);
  EXPECT_NEAR(*finding.gain_ms, 60, 6);
  EXPECT_EQ(finding.facts.at("place"), "train.py:14");
}

TEST(PythonRulesTest, WithoutAGpuALineThatAlsoRunsTheModelIsTheModels) {
  const auto on_cpu = [](int line_of_model) {
    RunBuilder builder;
    builder.without_gpu_records();
    builder.fact("model", R"({"id":1,"class":"Net","parameters":1000,"devices":{"cpu":1000}})");
    builder.train(
        Script().python(14, 20).library(line_of_model, 30).begin(model::Phase::backward, 18).library(18, 30).end());
    builder.run().machine = machine_without_gpu();
    return builder;
  };
  EXPECT_EQ(expect_found(on_cpu(15), "python-per-step").line, 14);
  expect_not_found(on_cpu(14), "python-per-step");
}

constexpr const char* kTargetSource = R"({"schema":1,"files":[{"path":"/home/ada/train.py","error":null,
  "functions":[{"name":"make_targets","qualified":"make_targets","line":30,"end_line":38}],
  "loops":[{"line":32,"end_line":37,"function":"make_targets","depth":3,"ranges":3,"writes":["heatmap"],"trains":false}],
  "fields":[{"name":"heatmap"},{"name":"image"}]}]})";

TEST(PythonRulesTest, NestedLoopsThatFillTargetsAreOneFinding) {
  auto script = Script().data(12, 0.02).python(34, 30).python(35, 40).launches(8, 15, kConvolution, 2);
  auto builder = training(finish(script, 2));
  builder.run().source_facts = kTargetSource;
  const auto explanation = explain(builder.build());
  const auto finding = expect_found(explanation, "targets-recomputed");
  EXPECT_EQ(finding.line, 35);
  EXPECT_NEAR(*finding.gain_ms, 70, 7);
  EXPECT_EQ(finding.facts.at("function"), "make_targets");
  EXPECT_EQ(finding.facts.at("name"), "heatmap");
  EXPECT_EQ(explanation.find("python-per-step"), nullptr);
  EXPECT_TRUE(std::ranges::any_of(finding.evidence, [](const auto& seen) { return seen.value == "heatmap"; }));
}

TEST(PythonRulesTest, LoopsOfAnEnvironmentAreWorkAndNoTargets) {
  auto script = Script().data(12, 0.02).python(34, 30).python(35, 40).launches(8, 15, kConvolution, 2);
  auto builder = training(finish(script, 2));
  builder.run().source_facts = R"({"schema":1,"files":[{"path":"/home/ada/train.py","error":null,
    "functions":[{"name":"step","qualified":"Env.step","line":30,"end_line":38}],
    "loops":[{"line":32,"end_line":37,"function":"Env.step","depth":2,"ranges":1,"writes":["state"],"trains":false}]}]})";
  const auto explanation = explain(builder.build());
  EXPECT_EQ(explanation.find("targets-recomputed"), nullptr);
  const auto finding = expect_found(explanation, "python-per-step");
  EXPECT_EQ(finding.line, 35);
  EXPECT_NEAR(*finding.gain_ms, 70, 7);
}

TEST(PythonRulesTest, ATargetLoopOnTheGpuIsFoundByItsLaunches) {
  auto script =
      Script()
          .data(12, 0.02)
          .launches(600, 34, "void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>", 0.002, 0.1)
          .launches(8, 15, kConvolution, 2);
  auto builder = training(finish(script, 2));
  builder.run().source_facts = kTargetSource;
  const auto finding = expect_found(builder, "targets-recomputed");
  EXPECT_EQ(finding.line, 34);
  EXPECT_GT(*finding.gain_ms, 10);
}

TEST(PythonRulesTest, TheSourceMayBeACopyThatLiesElsewhere) {
  auto script = Script().data(12, 0.02).python(34, 60).launches(8, 15, kConvolution, 2);
  auto builder = training(finish(script, 2));
  std::string source = kTargetSource;
  builder.run().source_facts = source.replace(source.find("/home/ada"), 9, "/run/sources");
  EXPECT_EQ(expect_found(builder, "targets-recomputed").line, 34);
}

TEST(PythonRulesTest, TheTrainingLoopIsNoTargetLoop) {
  auto script = Script().data(12, 0.02).python(34, 60).launches(8, 15, kConvolution, 2);
  auto builder = training(finish(script, 2));
  std::string source = kTargetSource;
  builder.run().source_facts = source.replace(source.find("\"trains\":false"), 14, "\"trains\":true");
  const auto explanation = explain(builder.build());
  EXPECT_EQ(explanation.find("targets-recomputed"), nullptr);
  EXPECT_EQ(expect_found(explanation, "python-per-step").line, 34);
}

TEST(PythonRulesTest, ALineThatPrintsIsLogging) {
  auto script = Script().data(12, 0.02).launches(8, 15, kConvolution, 2);
  auto builder = training(finish(script, 2).python(3, 50));
  builder.run().sources[kTrainFile] = "import torch\n\n        print(f'step {i}')\n";
  EXPECT_EQ(expect_found(builder, "logging-each-step").line, 3);
}

TEST(PythonRulesTest, WithoutALoaderTheScriptMakesItsDataItself) {
  auto script = Script().python(2, 60).launches(8, 15, kConvolution, 2);
  Said said;
  said.loader = "";
  auto builder = training(finish(script, 2), said);
  builder.run().sources[kTrainFile] = "\nx = torch.from_numpy(np.random.rand(64, 3))\n";
  EXPECT_EQ(expect_found(builder, "loader-data-in-main-process").line, 2);
}

TEST(PythonRulesTest, GarbageCollectionIsPriced) {
  auto script = Script().data(12, 0.02).begin(Phase::garbage, 14).python(14, 6).end().launches(8, 15, kConvolution, 2);
  const auto finding = expect_found(training(finish(script, 2)), "garbage-collection-pauses");
  EXPECT_NEAR(*finding.charged_ms, 6, 1);
}

/// A GPU that runs dry after a wait at line 16: the host has to begin the second half of the step from nothing.
Script synced(const std::string& call = "cudaStreamSynchronize") {
  auto script = Script().data(12, 0.02).launches(40, 15, kConvolution, 0.5, 0.05);
  script.sync(16, call).launches(40, 17, kConvolution, 0.5, 0.05);
  return script.sync(20);
}

TEST(SyncRulesTest, WhatAWaitCostsIsToldOnlyWhereItCosts) {
  auto builder = training(synced());
  builder.run().sources[kTrainFile] = std::string(15, '\n') + "    total += loss.item()\n";
  const auto explanation = explain(builder.build());
  for (const auto& finding : explanation.findings) {
    expect_complete(finding);
    EXPECT_GE(finding.gain_ms.value_or(1), 0.01 * explanation.step_ms.mean) << finding.id;
  }
}

/// Evidence made by hand: a step of 100 ms in which one line of one cause costs 30.
struct OneLine {
  model::Run run;
  model::TrainingProcess trainer;
  model::Explanation explanation;
  ProcessFacts facts;
  std::vector<ProcessFacts> all_facts;
  Steps steps;
  GpuTime time;
  Attribution attribution;
  Replay replay;
  SourceFacts source;

  OneLine(std::string_view cause, const std::string& text) {
    steps.step_ms = {.median = 100, .mean = 100, .p05 = 99, .p95 = 101, .count = 100};
    attribution.charges = {{std::string(cause), false, HostPhase::rest, {kTrainFile, 1, "train"}, 30}};
    time.steps = 10;
    time.busy_ms = 70;
    run.sources[kTrainFile] = text;
    explanation.has_gpu = true;
  }
  OneLine& call(const std::string& name, const std::string& category, double count, double bytes, bool pageable) {
    attribution.calls.push_back(
        {name, category, HostPhase::rest, {kTrainFile, 1, "train"}, count, 30, bytes, pageable});
    return *this;
  }
  /// What the rule sees; the gain is that of a replay without a recording, so that it is not looked at.
  Matches check(std::string_view id) {
    const Evidence evidence{run,   &trainer, explanation, facts,  all_facts,
                            steps, time,     attribution, replay, std::nullopt};
    const Case examined{evidence, source, {}, {}, {}};
    for (const auto& rule : all_rules()) {
      if (rule.id == id) return rule.check(examined);
    }
    ADD_FAILURE() << id << " has no rule";
    return {};
  }
};

TEST(SyncRulesTest, ASyncIsNamedAfterWhatTheLineDoes) {
  const std::string sync = "cudaStreamSynchronize";
  OneLine item(cause::kSyncDrain, "  total += loss.item()");
  item.call(sync, "sync", 1, 4, true);
  ASSERT_EQ(item.check("sync-each-step").size(), 1U);
  EXPECT_EQ(item.check("sync-each-step").front().facts.at("value"), "total += loss.item()");
  EXPECT_EQ(item.check("sync-each-step").front().site.line, 1);
  EXPECT_TRUE(item.check("results-moved-to-cpu").empty());

  OneLine results(cause::kSyncDrain, "  outputs.append(out.cpu())");
  results.call("cudaMemcpyAsync", "copy", 1, 512'000, true);
  EXPECT_EQ(results.check("results-moved-to-cpu").front().facts.at("count"), "512");
  EXPECT_TRUE(results.check("sync-each-step").empty());

  OneLine device(cause::kSyncDrain, "  timer.stop()");
  device.call("cudaDeviceSynchronize", "sync", 1, 0, false);
  EXPECT_EQ(device.check("synchronize-each-step").size(), 1U);
  OneLine context(cause::kSyncDrain, "  timer.stop()");
  context.call("cuCtxSynchronize", "sync", 1, 0, false);
  EXPECT_EQ(context.check("synchronize-each-step").size(), 1U);

  OneLine unknown(cause::kSyncDrain, "  picked = torch.nonzero(mask)");
  EXPECT_EQ(unknown.check("dynamic-shape-sync").size(), 1U);
  EXPECT_TRUE(unknown.check("sync-each-step").empty());
}

TEST(PythonRulesTest, LinesOfAFunctionThatIsCalledAreOneFinding) {
  OneLine log(cause::kPython, "dump(record)\nflush()\nprepare()\nscale()\nloss.backward()");
  const auto charge = [](int line, double ms, HostPhase phase = HostPhase::rest) {
    return Charge{std::string(cause::kPython), false, phase, {kTrainFile, line, line < 3 ? "write" : "train"}, ms};
  };
  log.attribution.charges = {charge(1, 10), charge(2, 8), charge(3, 12), charge(4, 11),
                             charge(5, 1, HostPhase::backward)};
  log.source.files.push_back({.path = kTrainFile,
                              .error = "",
                              .functions = {{"write", "Log.write", 1, 2, {}}, {"train", "train", 3, 5, {}}},
                              .calls = {},
                              .assignments = {},
                              .comparisons = {},
                              .truths = {},
                              .loops = {},
                              .uses = {},
                              .loaders = {},
                              .fields = {},
                              .references = {}});
  const auto found = log.check("python-per-step");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].site.line, 1);
  EXPECT_EQ(found[0].charged_ms, 18) << "both lines of write";
  EXPECT_EQ(found[1].site.line, 3);
  EXPECT_EQ(found[2].site.line, 4);
}

TEST(CopyRulesTest, ABlockingCopyIsNamedAfterItsMemoryAndSize) {
  OneLine pinned(cause::kCopyWait, "  x = x.to(device)");
  pinned.call("cudaMemcpyAsync", "copy", 1, 9'600'000, false);
  EXPECT_EQ(pinned.check("copies-blocking").size(), 1U);
  EXPECT_TRUE(pinned.check("copies-pageable").empty());

  OneLine pageable(cause::kCopyWait, "  x = x.to(device)");
  pageable.call("cudaMemcpyAsync", "copy", 1, 9'600'000, true);
  pageable.time.copies = {{CopyUse::Direction::to_device, true, 4, 1, 9'600'000}};
  const auto matches = pageable.check("copies-pageable");
  ASSERT_EQ(matches.size(), 1U);
  EXPECT_NEAR(*matches.front().charged_ms, 30, 1e-9);
  EXPECT_NEAR(*matches.front().gain_ms, 15, 1e-9);
  EXPECT_EQ(matches.front().facts.at("value"), "2.4");
  EXPECT_TRUE(pageable.check("copies-blocking").empty());

  OneLine made(cause::kCopyWait, "  weight = torch.tensor([1.0, 2.0]).to(device)");
  made.call("cudaMemcpyAsync", "copy", 1, 8, true);
  EXPECT_EQ(made.check("tensors-made-on-cpu").size(), 1U);
  EXPECT_TRUE(made.check("copies-blocking").empty());
}

TEST(CopyRulesTest, CopiesThatAreNotHiddenFillTheBus) {
  OneLine bus(cause::kGpuCopyToDevice, "");
  bus.time.copies = {{CopyUse::Direction::to_device, false, 30, 1, 600'000'000}};
  const auto matches = bus.check("copies-fill-the-bus");
  ASSERT_EQ(matches.size(), 1U);
  EXPECT_EQ(matches.front().facts.at("value"), "20");
  OneLine hidden(cause::kSyncDrain, "");
  hidden.time.copies = bus.time.copies;
  EXPECT_TRUE(hidden.check("copies-fill-the-bus").empty());
}

}  // namespace
}  // namespace fullwatt::explain
