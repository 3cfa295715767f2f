// What removing something would give. The script played without it is the truth.

#include <string>

#include "tests/support/run_builder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/explain/attribution.hpp"
#include "fullwatt/explain/causes.hpp"
#include "fullwatt/explain/replay.hpp"

namespace fullwatt::explain {
namespace {

using model::Phase;
using tests::RunBuilder;
using tests::Script;

constexpr const char* kGemm = "ampere_sgemm_128x64_tn";
constexpr const char* kAdd = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >";

struct Played {
  double step_ms = 0;
  std::vector<model::Cause> causes;
  Replay replay;
};

Played play(RunBuilder& builder) {
  const auto run = builder.build();
  const auto& process = run.processes.front();
  std::vector<ProcessFacts> facts;
  for (const auto& each : run.processes) facts.push_back(parse_facts(each));
  const auto [steps, time] = measure_steps(process);
  const auto recorded = read_causes(process, facts.front(), steps, time.device);
  const auto pace = loader_pace(run, facts, process, facts.front(), steps);
  const auto attribution =
      time.known() ? attribute_gpu(process, steps, time, recorded, pace.loads_itself) : attribute_host(steps, recorded);
  Played played{steps.mean_ms(), causes_of(attribution, steps.mean_ms()),
                make_replay(process, steps, time, recorded, attribution, pace)};
  price(played.causes, played.replay);
  return played;
}

Played play(const Script& script) {
  RunBuilder builder;
  return play(builder.train(script));
}

double step_ms(const Script& script) {
  return play(script).step_ms;
}

const model::Cause& cause_of(const Played& played, std::string_view id) {
  static const model::Cause kNone;
  const auto at = std::ranges::find(played.causes, id, &model::Cause::id);
  return at == played.causes.end() ? kNone : *at;
}

Script training(double data_ms, double python_ms, bool sync, double kernel_ms = 0.05) {
  Script script;
  script.data(10, data_ms);
  if (python_ms > 0) script.python(12, python_ms);
  script.launches(80, 14, kGemm, kernel_ms, 0.02);
  script.begin(Phase::backward, 16).launches(80, 16, kGemm, kernel_ms, 0.02).end();
  script.begin(Phase::optimizer, 17).launch(17, kAdd, 0.02, 0.02).end();
  if (sync) script.sync(18);
  return script;
}

/// Of the true value.
constexpr double kError = 0.05;

void expect_near_share(double value, double truth, const char* what) {
  EXPECT_NEAR(value, truth, kError * truth + 0.05) << what;
}

TEST(Replay, TheBaselineIsTheMeasuredStep) {
  const auto played = play(training(1.0, 2.0, true));
  EXPECT_TRUE(played.replay.simulates());
  EXPECT_NEAR(played.replay.step_ms({}), played.step_ms, 1e-6);
}

TEST(Replay, RemovingASynchronisationGivesWhatTheScriptWithoutItTakes) {
  const auto played = play(training(0.2, 3.0, true));
  const double truth = step_ms(training(0.2, 3.0, false));
  EXPECT_LT(truth, 0.8 * played.step_ms);
  expect_near_share(played.replay.step_ms(Change::without(cause::kSyncDrain)), truth, "all");
  const model::Site line{tests::kTrainFile, 18, "train"};
  expect_near_share(played.replay.step_ms(Change::without(cause::kSyncDrain, line)), truth, "at its line");
  const model::Site other{tests::kTrainFile, 99, "train"};
  EXPECT_NEAR(played.replay.gain_ms(Change::without(cause::kSyncDrain, other)), 0, 1e-6);
}

TEST(Replay, RemovingPythonGivesWhatTheScriptWithoutItTakes) {
  const auto played = play(training(0.2, 9.0, false));
  expect_near_share(played.replay.step_ms(Change::without(cause::kPython)), step_ms(training(0.2, 0.0, false)),
                    "python");
}

TEST(Replay, RemovingWhatTheGpuHidesGivesNothing) {
  // 160 kernels of 0.2 ms: the GPU is the limit, 3 ms of Python are hidden behind it.
  const auto played = play(training(0.2, 3.0, false, 0.2));
  EXPECT_LT(played.replay.gain_ms(Change::without(cause::kPython)), 0.02 * played.step_ms);
}

TEST(Replay, KernelsTwiceAsFastHalveAStepThatTheGpuLimits) {
  const auto played = play(training(0.2, 0.0, false, 0.2));
  expect_near_share(played.replay.step_ms(Change::scaled("matmul", "fp32", 0.5)),
                    step_ms(training(0.2, 0.0, false, 0.1)), "faster kernels");
  EXPECT_NEAR(played.replay.gain_ms(Change::scaled("convolution", "", 0.5)), 0, 1e-6);
  EXPECT_GT(played.replay.step_ms(Change::scaled("matmul", "", 2)), 1.8 * played.step_ms);
}

TEST(Replay, RemovingDataWaitGivesAStepWithoutIt) {
  RunBuilder builder;
  builder.fact("loader", R"({"id":0,"num_workers":0})");
  const auto played = play(builder.train(training(12.0, 0.0, false)));
  expect_near_share(played.replay.step_ms(Change::without(cause::kDataWait)), step_ms(training(0.0, 0.0, false)),
                    "data");
}

TEST(Replay, BehindALoaderThatGivesNoMoreNothingElseCanBeGained) {
  RunBuilder builder;
  builder.fact("loader", R"({"id":0,"num_workers":2})");
  const auto played = play(builder.train(training(12.0, 2.0, false)));
  EXPECT_NEAR(played.replay.gain_ms(Change::without(cause::kPython)), 0, 1e-6);
  EXPECT_GT(played.replay.gain_ms(Change::without(cause::kDataWait)), 8);
}

TEST(Replay, TheWorkersOwnTimesSayHowMuchMoreTheLoaderCouldGive) {
  RunBuilder builder;
  builder.fact("loader", R"({"id":0,"num_workers":2})");
  builder.train(training(0.1, 12.0, false));
  model::TrainingProcess worker;
  worker.role = model::TrainingProcess::Role::worker;
  worker.pid = 4800;
  for (int i = 0; i < 10; ++i) {
    worker.fetches.push_back({.worker = i % 2, .start_ns = 1'000'000'000, .end_ns = 1'020'000'000});
  }
  builder.run().processes.push_back(worker);
  // 20 ms a batch in two workers: one every 10 ms.
  EXPECT_NEAR(play(builder).replay.step_ms(Change::without(cause::kPython)), 10.0, 0.1);
}

TEST(Replay, RemovingTheLaunchesOfOnePhaseLeavesTheOthers) {
  Script script;
  script.data(10, 0.1).launches(100, 14, kAdd, 0.002, 0.03);
  script.begin(Phase::optimizer, 17).launches(200, 17, kAdd, 0.002, 0.03).end();
  const auto played = play(script);
  expect_near_share(played.replay.gain_ms(Change::without(cause::kLaunchBound, HostPhase::optimizer)), 6.0,
                    "optimiser");
}

TEST(Replay, RecordingCostIsTakenOut) {
  const auto script = training(0.2, 2.0, false, 0.005);
  RunBuilder builder;
  builder.recording_cost(0.003, 0.015);
  const auto played = play(builder.train(script));
  EXPECT_NEAR(played.replay.step_ms({}), played.step_ms, 1e-6);
  expect_near_share(played.replay.step_ms(Change::without(cause::kPython)), step_ms(training(0.2, 0.0, false, 0.005)),
                    "python");
}

TEST(Replay, AChangeOfTwoThingsIsTheirSum) {
  const auto played = play(training(3.0, 4.0, true));
  auto change = Change::without(cause::kSyncDrain);
  change += Change::without(cause::kPython);
  EXPECT_LE(played.replay.step_ms(change), played.replay.step_ms(Change::without(cause::kSyncDrain)) + 1e-9);
}

TEST(Replay, HalfOfACauseGivesHalf) {
  const auto played = play(training(0.1, 12.0, false));
  Change half = Change::without(cause::kPython);
  half.removals.front().share = 0.5;
  EXPECT_NEAR(played.replay.gain_ms(half), 6.0, 0.4);
}

TEST(Replay, WithoutKernelRecordsTheGainIsTheCharge) {
  RunBuilder builder;
  builder.without_gpu_records();
  const auto played = play(builder.train(Script().data(10, 4.0).python(12, 3.0).library(14, 5.0)));
  EXPECT_FALSE(played.replay.simulates());
  EXPECT_NEAR(played.replay.gain_ms(Change::without(cause::kDataWait)), 4.0, 1e-6);
  EXPECT_NEAR(*cause_of(played, cause::kDataWait).gain_alone_ms, 4.0, 1e-6);
  EXPECT_FALSE(cause_of(played, cause::kForward).gain_alone_ms.has_value()) << "computing cannot be removed";
}

TEST(Price, GainsAfterEachOtherAddUpToNoMoreThanTheStep) {
  const auto played = play(training(3.0, 4.0, true));
  double sum = 0;
  for (const auto& cause : played.causes) {
    if (!cause.gain_after_ms) continue;
    EXPECT_LE(*cause.gain_alone_ms, played.step_ms);
    EXPECT_GE(*cause.gain_after_ms, 0);
    sum += *cause.gain_after_ms;
  }
  EXPECT_GT(sum, 5);
  EXPECT_LE(sum, played.step_ms);
}

TEST(Price, KernelsThatComputeHaveNoGain) {
  const auto played = play(training(0.2, 3.0, true));
  EXPECT_FALSE(cause_of(played, "gpu-matmul").gain_alone_ms.has_value());
  EXPECT_TRUE(cause_of(played, cause::kSyncDrain).gain_alone_ms.has_value());
}

}  // namespace
}  // namespace fullwatt::explain
