#include <algorithm>

#include <gtest/gtest.h>

#include "fullwatt/tune/candidates.hpp"

namespace fullwatt::tune {
namespace {

struct Case {
  model::Explanation explanation;
  explain::ProcessFacts facts;
  bool cpu_knows_bfloat16 = false;

  std::vector<std::string> ids() const {
    std::vector<std::string> found;
    for (const auto& one : candidates({explanation, facts, 8, 64ULL << 30, "", cpu_knows_bfloat16}))
      found.push_back(one.fix.id);
    return found;
  }
  void find(const std::string& id) {
    model::Finding finding;
    finding.id = id;
    explanation.findings.push_back(finding);
  }
};

Case image_training(const std::string& device) {
  Case made;
  explain::ModelFact model;
  model.modules = {{"Conv2d", 20}, {"Linear", 1}};
  model.dtypes = {{"float32", 1000}};
  model.devices = {{device, 1000}};
  model.channels_last = 0;
  made.facts.models.push_back(model);
  explain::OptimizerFact optimizer;
  optimizer.class_name = "AdamW";
  made.facts.optimizers.push_back(optimizer);
  explain::LoaderFact loader;
  loader.dataset_length = 1000;
  loader.num_workers = 0;
  made.facts.loaders.push_back(loader);
  made.facts.settings["first-step"] = {{"matmul.precision", "highest"}, {"cudnn.benchmark", "false"}};
  if (device != "cpu") made.facts.gpus.push_back({.index = 0, .name = "H200", .capability = "9.0"});
  return made;
}

bool has(const std::vector<std::string>& ids, std::string_view id) {
  return std::ranges::find(ids, id) != ids.end();
}

TEST(TuneCandidatesTest, AnImageTrainingOnAGpuGetsPrecisionFirstAndTheLoaderLast) {
  auto training = image_training("cuda:0");
  training.find("loader-workers-zero");
  const auto ids = training.ids();
  const std::vector<std::string> expected{
      "tf32",         "bf16",           "cudnn-benchmark", "channels-last", "compile", "fused-optimizer",
      "sample-cache", "loader-workers", "loader-pinned",   "non-blocking"};
  EXPECT_EQ(ids, expected);
}

TEST(TuneCandidatesTest, StepsThatAreBoundByLaunchingGetGraphsAndTheirBackwardPassInline) {
  auto training = image_training("cuda:0");
  training.explanation.step_ms.mean = 100;
  training.explanation.causes.emplace_back();
  training.explanation.causes[0].id = "launch-bound";
  training.explanation.causes[0].charged_ms = 1;
  for (const auto* id : {"cuda-graphs", "backward-inline"}) EXPECT_FALSE(has(training.ids(), id)) << id;
  training.explanation.causes[0].charged_ms = 3;
  for (const auto* id : {"cuda-graphs", "backward-inline"}) EXPECT_TRUE(has(training.ids(), id)) << id;
}

TEST(TuneCandidatesTest, GradientsThatAreFilledWithZerosAreLetGo) {
  auto training = image_training("cuda:0");
  EXPECT_FALSE(has(training.ids(), "gradients-to-none"));
  training.find("zero-grad-fills");
  EXPECT_TRUE(has(training.ids(), "gradients-to-none"));
}

TEST(TuneCandidatesTest, OnACpuNothingOfAGpuIsTried) {
  const auto ids = image_training("cpu").ids();
  for (const auto* id : {"tf32", "bf16", "cudnn-benchmark", "compile", "loader-pinned", "non-blocking"})
    EXPECT_FALSE(has(ids, id)) << id;
  EXPECT_TRUE(has(ids, "channels-last"));
  EXPECT_TRUE(has(ids, "fused-optimizer"));
}

TEST(TuneCandidatesTest, ACpuThatKnowsBfloat16GetsIt) {
  auto training = image_training("cpu");
  training.cpu_knows_bfloat16 = true;
  EXPECT_TRUE(has(training.ids(), "bf16"));
  training = image_training("cuda:0");
  training.facts.gpus[0].capability = "7.5";
  training.cpu_knows_bfloat16 = true;
  EXPECT_FALSE(has(training.ids(), "bf16")) << "it trains on a GPU that does not";
}

TEST(TuneCandidatesTest, CardsWithoutBfloat16GetFloat16) {
  auto training = image_training("cuda:0");
  training.facts.gpus[0] = {.index = 0, .name = "T4", .capability = "7.5"};
  EXPECT_TRUE(has(training.ids(), "fp16"));
  EXPECT_FALSE(has(training.ids(), "bf16"));
  training.facts.gpus[0].capability = "6.1";
  EXPECT_FALSE(has(training.ids(), "fp16"));
}

TEST(TuneCandidatesTest, WhatIsInForceAlreadyIsNotTried) {
  auto training = image_training("cuda:0");
  training.facts.models[0].channels_last = 1;
  training.facts.models[0].compiled = true;
  training.facts.optimizers[0].fused = true;
  training.facts.loaders[0].pin_memory = true;
  training.facts.autocasts.push_back({.device = "cuda", .dtype = "bfloat16", .enabled = true});
  training.facts.settings["first-step"] = {{"matmul.precision", "high"}, {"cudnn.benchmark", "true"}};
  EXPECT_EQ(training.ids(), std::vector<std::string>{"non-blocking"});
}

TEST(TuneCandidatesTest, WorkersForAGpuPinTheirBatches) {
  for (const auto* device : {"cuda:0", "cpu"}) {
    auto training = image_training(device);
    training.find("loader-workers-zero");
    const auto found = candidates({training.explanation, training.facts, 8, 64ULL << 30});
    const auto workers = std::ranges::find(found, "loader-workers", [](const auto& one) { return one.fix.id; });
    ASSERT_NE(workers, found.end());
    EXPECT_EQ(workers->fix.settings.contains("pinned"), std::string_view(device) == "cuda:0");
    EXPECT_EQ(workers->fix.settings.at("persistent"), "true");
  }
}

TEST(TuneCandidatesTest, BatchesThatTheLoaderPutsOnTheGpuAreNotPinned) {
  auto training = image_training("cuda:0");
  training.find("loader-samples-on-gpu");
  training.facts.batch_device = "cuda:0";
  EXPECT_TRUE(has(training.ids(), "sample-cache"));
  for (const auto* id : {"loader-pinned", "loader-workers"}) EXPECT_FALSE(has(training.ids(), id)) << id;
}

TEST(TuneCandidatesTest, AnIterableDataSetIsLeftToItsOwnLoader) {
  auto training = image_training("cpu");
  training.find("loader-workers-zero");
  training.facts.loaders[0].iterable = true;
  EXPECT_FALSE(has(training.ids(), "sample-cache"));
  EXPECT_FALSE(has(training.ids(), "loader-workers"));
}

TEST(TuneCandidatesTest, CpusBesideTheGpuAreProposedWhereNotAllAre) {
  auto training = image_training("cuda");
  EXPECT_FALSE(has(training.ids(), "affinity"));
  const auto found = candidates({training.explanation, training.facts, 64, 64ULL << 30, "0-15,32-47"});
  const auto affinity = std::ranges::find(found, "affinity", [](const auto& one) { return one.fix.id; });
  ASSERT_NE(affinity, found.end());
  EXPECT_EQ(affinity->fix.settings.at("cpus"), "0-15,32-47");
  EXPECT_TRUE(affinity->predicted.low_ms && affinity->predicted.high_ms);
}

TEST(TuneCandidatesTest, FindingsBringTheirFixesWithSettingsForThisMachine) {
  auto training = image_training("cpu");
  training.find("threads-oversubscribed");
  training.find("garbage-collection-pauses");
  training.find("loader-workers-respawned");
  const auto found = candidates({training.explanation, training.facts, 8, 64ULL << 30});
  const auto threads = std::ranges::find(found, "threads", [](const auto& one) { return one.fix.id; });
  ASSERT_NE(threads, found.end());
  EXPECT_EQ(threads->fix.settings.at("count"), "8");
  EXPECT_EQ(threads->why, "mends threads-oversubscribed");
  training.explanation.findings[0].facts["expected"] = "2";
  const auto again = candidates({training.explanation, training.facts, 8, 64ULL << 30});
  EXPECT_EQ(std::ranges::find(again, "threads", [](const auto& one) { return one.fix.id; })->fix.settings.at("count"),
            "2");
  EXPECT_TRUE(has(training.ids(), "gc-freeze"));
  EXPECT_TRUE(has(training.ids(), "loader-persistent"));
}

/// A training on the CPU with 8 threads, of so many operations, that computes 10 ms a step.
Case cpu_training(double flops, int workers) {
  auto training = image_training("cpu");
  training.facts.loaders[0].num_workers = workers;
  training.facts.settings["first-step"]["threads"] = "8";
  training.facts.flops = explain::FlopsFact{.total = flops, .bytes = {{"cpu", 1e6}}};
  model::Cause forward;
  forward.id = "forward";
  forward.charged_ms = 10;
  training.explanation.causes.push_back(forward);
  return training;
}

/// As proposed for 8 CPUs; empty where it is not.
std::string proposed_threads(const Case& training) {
  const auto found = candidates({training.explanation, training.facts, 8, 64ULL << 30});
  const auto threads = std::ranges::find(found, "threads", [](const auto& one) { return one.fix.id; });
  return threads != found.end() ? threads->fix.settings.at("count") : std::string();
}

TEST(TuneCandidatesTest, OneThreadIsProposedWhereItWouldTakeLessThanAllDo) {
  EXPECT_EQ(proposed_threads(cpu_training(1e6, 0)), "1");
  EXPECT_EQ(proposed_threads(cpu_training(1e12, 0)), "") << "there is work for all of them";
  auto training = cpu_training(1e6, 0);
  training.facts.flops->reason = "the step is compiled";
  EXPECT_EQ(proposed_threads(training), "") << "nobody counted";
  training = cpu_training(1e6, 0);
  training.facts.settings["first-step"]["threads"] = "1";
  EXPECT_EQ(proposed_threads(training), "");
  training = cpu_training(1e6, 0);
  training.facts.models[0].devices = {{"cuda:0", 1000}};
  training.facts.gpus.push_back({.index = 0, .name = "H200", .capability = "9.0"});
  EXPECT_EQ(proposed_threads(training), "") << "what a GPU computes is none of theirs";
}

TEST(TuneCandidatesTest, WorkersOfALoaderGetCpusOfTheirOwn) {
  EXPECT_EQ(proposed_threads(cpu_training(1e12, 3)), "5");
  EXPECT_EQ(proposed_threads(cpu_training(1e12, 12)), "1");
}

const Candidate& find(const std::vector<Candidate>& all, std::string_view id) {
  return *std::ranges::find(all, id, [](const auto& one) { return one.fix.id; });
}

TEST(TuneCandidatesTest, SettingsBeginWhereTheCardAndTheDataSay) {
  auto training = image_training("cuda:0");
  training.facts.gpus[0].memory_bytes = 141ULL << 30;
  training.facts.loaders[0].dataset_length = 2'000'000;
  training.find("loader-workers-zero");
  training.find("loader-prefetch-small");
  const auto large = candidates({training.explanation, training.facts, 64, 64ULL << 30});
  EXPECT_EQ(find(large, "loader-workers").fix.settings.at("count"), "24");
  EXPECT_EQ(find(large, "loader-prefetch").fix.settings.at("factor"), "8");
  EXPECT_EQ(find(large, "sample-cache").fix.settings.at("gpu_gigabytes"), "70");
  training.facts.gpus[0].memory_bytes = 6ULL << 30;
  training.facts.loaders[0].dataset_length = 5'000;
  const auto small = candidates({training.explanation, training.facts, 64, 64ULL << 30});
  EXPECT_EQ(find(small, "loader-workers").fix.settings.at("count"), "2");
  EXPECT_EQ(find(small, "sample-cache").fix.settings.at("gpu_gigabytes"), "1");
}

TEST(TuneCandidatesTest, WhatWasMeasuredCountsMoreThanWhereSettingsBegin) {
  auto training = image_training("cuda:0");
  training.find("loader-workers-too-few");
  training.explanation.findings.back().facts["expected"] = "11";
  const auto found = candidates({training.explanation, training.facts, 64, 64ULL << 30});
  EXPECT_EQ(find(found, "loader-workers").fix.settings.at("count"), "11");
}

TEST(TuneCandidatesTest, WorkersOfALoaderWithoutAnyAreKeptOverEpochs) {
  auto training = image_training("cuda:0");
  training.find("loader-workers-zero");
  training.find("loader-workers-too-few");
  const auto settings = [&] {
    return find(candidates({training.explanation, training.facts, 64, 64ULL << 30}), "loader-workers").fix.settings;
  };
  training.facts.loaders[0].num_workers = 0;
  EXPECT_EQ(settings().at("persistent"), "true");
  training.facts.loaders[0].follows_epochs = true;
  EXPECT_FALSE(settings().contains("persistent")) << "workers that were kept would not hear of epochs";
  training.facts.loaders[0].follows_epochs = false;
  training.facts.loaders[0].num_workers = 1;
  EXPECT_FALSE(settings().contains("persistent")) << "how they live is the program's own choice";
}

}  // namespace
}  // namespace fullwatt::tune
