// Trainings whose causes are known by construction: explain must find them, at their lines, in full.

#include <numeric>
#include <string>

#include "catalog/catalog.hpp"
#include "tests/support/run_builder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/explain/causes.hpp"
#include "fullwatt/explain/explain.hpp"

namespace fullwatt::explain {
namespace {

using model::Phase;
using tests::RunBuilder;
using tests::Script;

constexpr const char* kGemm = "ampere_sgemm_128x64_tn";
constexpr const char* kAdd = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >";

const model::Cause* cause_of(const model::Explanation& explanation, std::string_view id) {
  const auto at = std::ranges::find(explanation.causes, id, &model::Cause::id);
  return at == explanation.causes.end() ? nullptr : &*at;
}

double charged(const model::Explanation& explanation, std::string_view id) {
  const auto* cause = cause_of(explanation, id);
  return cause == nullptr ? 0 : cause->charged_ms;
}

int first_line(const model::Explanation& explanation, std::string_view id) {
  const auto* cause = cause_of(explanation, id);
  return cause == nullptr || cause->lines.empty() ? 0 : cause->lines.front().site.line;
}

void expect_sums_to_the_step(const model::Explanation& explanation) {
  double sum = 0;
  for (const auto& cause : explanation.causes) {
    EXPECT_GE(cause.charged_ms, 0) << cause.id;
    sum += cause.charged_ms;
  }
  EXPECT_NEAR(sum, explanation.step_ms.mean, 1e-9);
}

model::Explanation explained(const Script& script) {
  return explain(RunBuilder().train(script).build());
}

/// Forward, backward and optimiser with a GPU that is never short of work.
void healthy_step(Script& script, double gpu_ms = 1.0) {
  script.launches(10, 14, kGemm, gpu_ms / 2 / 10);
  script.begin(Phase::backward, 16).launches(10, 16, kGemm, gpu_ms / 2 / 10).end();
  script.begin(Phase::optimizer, 17).launch(17, kAdd, 0.05).end();
}

TEST(Attribution, AHealthyStepIsTheGpusWork) {
  Script script;
  script.data(10, 0.01);
  healthy_step(script, 20.0);
  const auto explanation = explained(script);
  EXPECT_TRUE(explanation.has_gpu);
  EXPECT_NEAR(*explanation.gpu_busy_ms, 20.05, 0.2);
  EXPECT_NEAR(charged(explanation, "gpu-matmul"), 20.0, 0.2);
  EXPECT_LT(explanation.step_ms.mean - *explanation.gpu_busy_ms, 0.2);
  expect_sums_to_the_step(explanation);
}

TEST(Attribution, AStarvedLoaderIsChargedToTheLineThatWaits) {
  Script script;
  script.data(10, 8.0);
  healthy_step(script, 2.0);
  const auto explanation = explained(script);
  // The GPU ends the last step's work in the first 2 ms of it.
  EXPECT_NEAR(charged(explanation, cause::kDataWait), 6.3, 0.3);
  EXPECT_EQ(first_line(explanation, cause::kDataWait), 10);
  EXPECT_GE(*explanation.explained_idle_share, 0.95);
  expect_sums_to_the_step(explanation);
}

TEST(Attribution, FetchingInTheMainProcessIsChargedToTheDataSetsLine) {
  Script script;
  script.begin(Phase::data, 10).python(55, 6.0).library(57, 1.0).end();
  healthy_step(script, 2.0);
  const auto explanation = explained(script);
  EXPECT_EQ(first_line(explanation, cause::kDataWait), 55);
  EXPECT_NEAR(charged(explanation, cause::kDataWait), 5.3, 0.3);
}

TEST(Attribution, PythonBetweenLaunchesIsChargedToItsLine) {
  Script script;
  script.data(10, 0.01).python(12, 6.0);
  healthy_step(script, 2.0);
  const auto explanation = explained(script);
  EXPECT_NEAR(charged(explanation, cause::kPython), 4.3, 0.3);
  EXPECT_EQ(first_line(explanation, cause::kPython), 12);
  expect_sums_to_the_step(explanation);
}

TEST(Attribution, ALibrarysPythonIsPythonAtTheUsersLine) {
  Script script;
  script.data(10, 0.01).library(13, 5.0, tests::kNumpyFile);
  healthy_step(script, 2.0);
  const auto explanation = explained(script);
  EXPECT_NEAR(charged(explanation, cause::kPython), 3.3, 0.3);
  EXPECT_EQ(first_line(explanation, cause::kPython), 13);
}

TEST(Attribution, ManyShortKernelsAreLaunchBound) {
  Script script;
  script.data(10, 0.01).launches(300, 14, kAdd, 0.002, 0.02);
  script.begin(Phase::optimizer, 17).launch(17, kAdd, 0.002, 0.02).end();
  const auto explanation = explained(script);
  EXPECT_NEAR(charged(explanation, cause::kLaunchBound), 5.4, 0.3);
  EXPECT_EQ(first_line(explanation, cause::kLaunchBound), 14);
  EXPECT_GE(*explanation.explained_idle_share, 0.95);
  expect_sums_to_the_step(explanation);
}

TEST(Attribution, ASynchronisationIsChargedWithTheQueueItEmptied) {
  Script script;
  script.data(10, 0.01);
  // The host needs 3 ms to launch, the GPU 10 ms to compute: but for the wait it would always be ahead.
  script.launches(100, 14, kGemm, 0.07, 0.02);
  script.begin(Phase::backward, 16).launches(50, 16, kGemm, 0.06, 0.02).end();
  script.begin(Phase::optimizer, 17).launch(17, kAdd, 0.05).end();
  script.sync(18).python(19, 2.0);
  const auto explanation = explained(script);
  EXPECT_NEAR(charged(explanation, cause::kSyncDrain), 2.0, 0.3);
  EXPECT_EQ(first_line(explanation, cause::kSyncDrain), 18);
  EXPECT_LT(charged(explanation, cause::kPython), 0.2);
  expect_sums_to_the_step(explanation);
}

TEST(Attribution, ASynchronisationCostsNothingWhereTheHostIsTheSlowerOne) {
  Script script;
  script.data(10, 0.01).python(12, 9.0);
  healthy_step(script, 1.0);
  script.sync(18);
  const auto explanation = explained(script);
  EXPECT_GT(charged(explanation, cause::kPython), 8.0);
  EXPECT_LT(charged(explanation, cause::kSyncDrain), 0.5);
}

TEST(Attribution, APageableCopyIsChargedAsACopyNotAsASynchronisation) {
  Script script;
  script.data(10, 0.01).copy(11, 64 << 20, 3.0, true);
  healthy_step(script, 8.0);
  const auto explanation = explained(script);
  EXPECT_NEAR(charged(explanation, cause::kGpuCopyToDevice), 3.0, 0.2);
  EXPECT_EQ(first_line(explanation, cause::kGpuCopyToDevice), 11);
  EXPECT_EQ(charged(explanation, cause::kSyncDrain), 0);
  expect_sums_to_the_step(explanation);
}

TEST(Attribution, ASynchronisationRightBehindACopyToTheGpuBelongsToTheCopy) {
  Script script;
  script.data(10, 0.01).copy(11, 1 << 20, 0.5, false).sync(11).python(12, 1.0);
  healthy_step(script, 8.0);
  const auto explanation = explained(script);
  EXPECT_GT(charged(explanation, cause::kCopyWait), 0.5);
  EXPECT_EQ(first_line(explanation, cause::kCopyWait), 11);
  EXPECT_EQ(charged(explanation, cause::kSyncDrain), 0);
}

TEST(Attribution, TheAllocatorsCallsAreTheirOwnCause) {
  Script script;
  script.data(10, 0.01).call(13, "cudaMalloc", 3.0).call(13, "cudaFree", 1.0);
  healthy_step(script, 0.2);
  const auto explanation = explained(script);
  EXPECT_NEAR(charged(explanation, cause::kAllocator), 4.0, 0.4);
  EXPECT_EQ(first_line(explanation, cause::kAllocator), 13);
}

TEST(Attribution, CollectingGarbageIsItsOwnCause) {
  Script script;
  script.data(10, 0.01).begin(Phase::garbage, 0).python(20, 2.0).end();
  healthy_step(script, 0.2);
  const auto explanation = explained(script);
  EXPECT_NEAR(charged(explanation, cause::kGarbage), 2.0, 0.2);
}

TEST(Attribution, WhatIsHiddenBehindKernelsIsNotCharged) {
  Script script;
  script.data(10, 0.01).copy(11, 64 << 20, 3.0, false, true, 13);
  healthy_step(script, 8.0);
  script.launch(15, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 2.0, 0.01, 20);
  const auto explanation = explained(script);
  EXPECT_LT(charged(explanation, cause::kGpuCopyToDevice), 0.3);
  EXPECT_LT(charged(explanation, cause::kCommunication), 0.3);
  EXPECT_NEAR(*explanation.gpu_busy_ms, 8.05, 0.4);
  expect_sums_to_the_step(explanation);
}

TEST(Attribution, ExposedCommunicationIsCharged) {
  Script script;
  script.data(10, 0.01);
  healthy_step(script, 4.0);
  script.sync(18).launch(15, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3.0, 0.01, 20).sync(18);
  const auto explanation = explained(script);
  EXPECT_NEAR(charged(explanation, cause::kCommunication), 3.0, 0.2);
}

TEST(Attribution, RecordingCostDoesNotBecomeACause) {
  Script script;
  script.data(10, 0.01).python(12, 3.0).launches(200, 14, kAdd, 0.002, 0.02);
  script.begin(Phase::optimizer, 17).launch(17, kAdd, 0.002).end();
  RunBuilder builder;
  builder.recording_cost(0.002, 0.012);
  const auto explanation = explain(builder.train(script).build());
  EXPECT_NEAR(charged(explanation, cause::kPython), 3.0, 0.5);
  EXPECT_NEAR(charged(explanation, cause::kLaunchBound), 3.6, 0.5);
  expect_sums_to_the_step(explanation);
}

TEST(Attribution, WithoutAWindowOfCausesIdleTimeIsUnexplainedButForData) {
  Script script;
  script.data(10, 4.0).python(12, 3.0);
  healthy_step(script, 2.0);
  RunBuilder builder;
  const auto explanation = explain(builder.plain(script, 30).times(script, 10).plain(script, 10).build());
  EXPECT_NEAR(charged(explanation, cause::kDataWait), 2.3, 0.3);
  EXPECT_EQ(first_line(explanation, cause::kDataWait), 10);
  EXPECT_NEAR(explanation.unexplained_ms, 3.0, 0.3);
  EXPECT_FALSE(explanation.remarks.empty());
  expect_sums_to_the_step(explanation);
}

TEST(Attribution, WithoutKernelRecordsThePhasesAreTheCauses) {
  Script script;
  script.data(10, 4.0).library(14, 6.0);
  script.begin(Phase::backward, 16).library(16, 5.0).end();
  script.begin(Phase::optimizer, 17).library(17, 2.0).end();
  script.python(12, 3.0);
  RunBuilder builder;
  builder.without_gpu_records();
  builder.fact("model", R"({"id":0,"class":"Net","parameters":10,"devices":{"cpu":10}})");
  const auto explanation = explain(builder.train(script).build());
  EXPECT_FALSE(explanation.has_gpu);
  EXPECT_EQ(explanation.no_gpu_records, "the training runs on the CPU");
  EXPECT_NEAR(charged(explanation, cause::kDataWait), 4.0, 1e-6);
  EXPECT_NEAR(charged(explanation, cause::kBackward), 5.0, 1e-6);
  EXPECT_NEAR(charged(explanation, cause::kOptimizer), 2.0, 1e-6);
  EXPECT_NEAR(charged(explanation, cause::kForward), 6.0, 0.4);
  EXPECT_NEAR(charged(explanation, cause::kPython), 3.0, 0.4);
  EXPECT_EQ(first_line(explanation, cause::kPython), 12);
  EXPECT_EQ(first_line(explanation, cause::kBackward), 16);
  expect_sums_to_the_step(explanation);
}

TEST(Attribution, CuptisTroubleIsTheReasonForMissingKernels) {
  Script script;
  script.data(10, 1.0).library(14, 6.0);
  RunBuilder builder;
  builder.without_gpu_records();
  builder.fact("model", R"({"id":0,"class":"Net","parameters":10,"devices":{"cuda:0":10}})");
  builder.process().troubles.push_back({0, "CUPTI is held by Nsight Systems"});
  const auto explanation = explain(builder.train(script).build());
  EXPECT_TRUE(explanation.has_gpu);
  EXPECT_EQ(explanation.no_gpu_records, "CUPTI is held by Nsight Systems");
}

TEST(Attribution, EveryCauseHasWordsInBothLanguages) {
  for (const auto id : {cause::kDataWait,
                        cause::kSyncDrain,
                        cause::kCopyWait,
                        cause::kAllocator,
                        cause::kLaunchBound,
                        cause::kModuleLoad,
                        cause::kPython,
                        cause::kGarbage,
                        cause::kCompile,
                        cause::kCheckpoint,
                        cause::kEvaluation,
                        cause::kUnexplained,
                        cause::kGpuCopyToDevice,
                        cause::kGpuCopyToHost,
                        cause::kGpuCopy,
                        cause::kCommunication,
                        cause::kForward,
                        cause::kBackward,
                        cause::kOptimizer,
                        std::string_view("gpu-matmul"),
                        std::string_view("gpu-rnn")}) {
    EXPECT_FALSE(catalog::label(id, catalog::Language::en).empty());
    EXPECT_NE(catalog::label(id, catalog::Language::zh), id) << "a label that is missing is told by its id";
  }
}

TEST(Attribution, AProgramWithoutStepsShowsTheGpusWorkInASecond) {
  model::Run run;
  model::TrainingProcess process;
  process.role = model::TrainingProcess::Role::native;
  process.texts.emplace_back(kGemm);
  process.windows.push_back({.start_ns = 1'000'000'000, .end_ns = 1'500'000'000});
  for (std::uint64_t i = 0; i < 5; ++i) {
    model::GpuActivity activity;
    activity.name = 1;
    activity.start_ns = 1'000'000'000 + i * 100'000'000;
    activity.end_ns = activity.start_ns + 25'000'000;
    process.activities.push_back(activity);
  }
  run.processes.push_back(process);
  const auto explanation = explain(run);
  EXPECT_TRUE(explanation.has_gpu);
  ASSERT_EQ(explanation.kernels.size(), 1U);
  EXPECT_NEAR(explanation.kernels.front().ms, 250, 1e-6);
  EXPECT_NEAR(explanation.kernels.front().count, 10, 1e-6);
  EXPECT_NEAR(*explanation.resources.front().used, 25, 1e-6);
}

TEST(Attribution, ARunWithoutStepsSaysWhatWentWrong) {
  model::Run run;
  model::TrainingProcess process;
  process.troubles.push_back({0, "no torch in this process"});
  run.processes.push_back(process);
  const auto explanation = explain(run);
  EXPECT_EQ(explanation.steps, 0U);
  EXPECT_TRUE(explanation.causes.empty());
  ASSERT_EQ(explanation.remarks.size(), 1U);
  EXPECT_EQ(explanation.remarks.front(), "no torch in this process");
}

}  // namespace
}  // namespace fullwatt::explain
