// What a training step is, and which steps count.

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/run_builder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/explain/gpu_time.hpp"
#include "fullwatt/explain/steps.hpp"

namespace fullwatt::explain {
namespace {

using model::Phase;
using tests::RunBuilder;
using tests::Script;

model::TrainingProcess process_of(RunBuilder& builder) {
  return builder.build().processes.front();
}

TEST(Steps, FlagsAreThoseOfTheSpool) {
  static_assert(step_flag::kInTimes == record::kInTimes && step_flag::kInCauses == record::kInCauses);
  static_assert(step_flag::kSwitching == record::kSwitching && step_flag::kEvaluated == record::kEvaluated);
  static_assert(step_flag::kSaved == record::kSaved && step_flag::kCompiled == record::kCompiled);
  static_assert(step_flag::kMeasured == record::kMeasured && step_flag::kCeiling == record::kCeiling);
  static_assert(step_flag::kCounting == record::kCounting);
  static_assert(kHostPhases == model::kPhaseCount + 1);
  EXPECT_EQ(static_cast<int>(HostPhase::agent), static_cast<int>(Phase::agent));
}

TEST(Steps, OneOptimiserEndsEveryStep) {
  RunBuilder builder;
  builder.plain(Script().data(10, 1.0).python(12, 2.0), 20);
  const auto steps = find_steps(process_of(builder));
  EXPECT_NEAR(steps.mean_ms(), 3.0, 1e-6);
  EXPECT_NEAR(steps.step_ms.median, 3.0, 1e-6);
  EXPECT_NEAR(steps.phase(HostPhase::data), 1.0, 1e-6);
  EXPECT_NEAR(steps.phase(HostPhase::rest), 2.0, 1e-6);
  EXPECT_EQ(steps.step_ms.count, 16U) << "the first fourth warms up";
}

TEST(Steps, WithTwoOptimisersTheOneThatStepsLessOftenEndsTheStep) {
  RunBuilder builder;
  builder.plain(Script().python(1, 1.0).step(0).python(2, 1.0).step(0).python(3, 2.0).step(1), 30);
  const auto process = process_of(builder);
  EXPECT_EQ(closing_optimizer(process), 1);
  const auto steps = find_steps(process);
  EXPECT_NEAR(steps.mean_ms(), 4.0, 1e-6);
  EXPECT_NEAR(steps.samples, 64.0, 1e-6) << "two calls of 32; the other optimiser sees the same";
  EXPECT_EQ(count_steps(process), 30U);
}

TEST(Steps, OfOptimisersThatStepAsOftenTheLastInTheCycleEndsTheStep) {
  RunBuilder builder;
  builder.plain(Script().python(1, 1.0).step(5).python(3, 2.0).step(2), 30);
  const auto process = process_of(builder);
  EXPECT_EQ(closing_optimizer(process), 2);
  EXPECT_NEAR(find_steps(process).mean_ms(), 3.0, 1e-6);
}

TEST(Steps, StepsWithEvaluationSavingAndWindowsDoNotCount) {
  const Script quick = Script().python(1, 2.0);
  const Script slow = Script().python(1, 50.0);
  RunBuilder builder;
  builder.plain(quick, 40).flagged(slow, 5, record::kEvaluated).flagged(slow, 5, record::kSaved).times(slow, 6);
  const auto steps = find_steps(process_of(builder));
  EXPECT_NEAR(steps.mean_ms(), 2.0, 1e-6);
  EXPECT_FALSE(steps.disturbed);
}

TEST(Steps, RareOutliersAreLeftOutOfTheMean) {
  const Script quick = Script().python(1, 2.0);
  RunBuilder builder;
  builder.plain(quick, 100).plain(Script().python(1, 80.0), 1).plain(quick, 100);
  EXPECT_NEAR(find_steps(process_of(builder)).mean_ms(), 2.0, 1e-6);
}

TEST(Steps, ALoaderThatDeliversInBurstsKeepsItsLongSteps) {
  const Script waits = Script().data(10, 97.0).python(1, 3.0);
  const Script quick = Script().python(1, 3.0);
  RunBuilder builder;
  for (int i = 0; i < 25; ++i) builder.plain(waits, 1).plain(quick, 3);
  const auto steps = find_steps(process_of(builder));
  EXPECT_NEAR(steps.mean_ms(), 27.25, 1.5);
  EXPECT_NEAR(steps.step_ms.median, 3.0, 1e-6);
}

TEST(Steps, AShortRunTakesTheLeastDisturbedStepsAndSaysSo) {
  RunBuilder builder;
  builder.times(Script().python(1, 2.0), 8);
  const auto steps = find_steps(process_of(builder));
  EXPECT_TRUE(steps.known());
  EXPECT_TRUE(steps.disturbed);
}

TEST(Steps, StepsInWhichTheHostOnlyFillsTheQueueDoNotCount) {
  Script script;
  script.launches(5, 14, "ampere_sgemm_128x64_tn", 2.0);
  RunBuilder builder;
  const auto measured = measure_steps(process_of(builder.plain(script, 40).times(script, 10).plain(script, 40)));
  EXPECT_NEAR(measured.time.busy_ms, 10.0, 0.1);
  EXPECT_NEAR(measured.steps.mean_ms(), 10.0, 0.2);
  EXPECT_FALSE(measured.steps.hurried.empty());
}

TEST(Steps, ARunThatNeverFillsTheQueueGoesAtTheGpusPace) {
  Script script;
  script.launches(2, 14, "ampere_sgemm_128x64_tn", 5.0);
  RunBuilder builder;
  const auto measured = measure_steps(process_of(builder.plain(script, 10).times(script, 10).plain(script, 10)));
  EXPECT_NEAR(measured.steps.mean_ms(), 10.0, 0.1);
}

TEST(Steps, AHostThatHurriesAndThenWaitsTakesTheMeanOfBoth) {
  // The loss is read every 40 steps: 39 steps as short as the host can launch, then one that waits for all of them.
  Script step;
  step.launches(2, 14, "ampere_sgemm_128x64_tn", 2.5);
  const auto reading = Script(step).sync(18).python(19, 4.0);
  RunBuilder builder;
  const auto cycle = [&] { builder.plain(step, 39).plain(reading, 1); };
  for (int i = 0; i < 5; ++i) cycle();
  builder.times(step, 10);
  for (int i = 0; i < 5; ++i) cycle();
  const auto measured = measure_steps(process_of(builder));
  EXPECT_NEAR(measured.time.busy_ms, 5.0, 0.1);
  EXPECT_NEAR(measured.steps.mean_ms(), 5.1, 0.1) << "5 ms, and 4 ms of Python in 40 steps";
  EXPECT_NEAR(measured.steps.step_ms.median, 5.1, 0.1);
}

TEST(Steps, AnotherLoopAtTheEndOfTheRunDoesNotCount) {
  RunBuilder builder;
  builder.plain(Script().python(1, 40.0), 80).plain(Script().python(2, 95.0), 5);
  EXPECT_NEAR(find_steps(process_of(builder)).mean_ms(), 40.0, 0.5);
}

TEST(Steps, ARunThatGetsSlowerAndSlowerKeepsAllOfItsSteps) {
  RunBuilder builder;
  for (int i = 0; i < 100; ++i) builder.plain(Script().python(1, 10.0 + 0.2 * i), 1);
  EXPECT_NEAR(find_steps(process_of(builder)).mean_ms(), 21.5, 0.3) << "but for those that warm up";
}

TEST(Steps, BatchesThatWereReadyBeforeTheFirstStepDoNotCount) {
  RunBuilder builder;
  builder.plain(Script().data(1, 0.1).python(1, 2.0), 14);
  for (int i = 0; i < 30; ++i)
    builder.plain(Script().data(1, 3.0).python(1, 2.0), 1).plain(Script().data(1, 13.0).python(1, 2.0), 1);
  EXPECT_NEAR(find_steps(process_of(builder)).mean_ms(), 10.0, 0.2);
}

TEST(Steps, PhasesThatOverlapNeverExceedTheStep) {
  RunBuilder builder;
  builder.plain(Script().begin(Phase::backward, 1).begin(Phase::garbage, 1).python(1, 4.0).end().end(), 20);
  const auto steps = find_steps(process_of(builder));
  double sum = 0;
  for (const double ms : steps.phase_ms) sum += ms;
  EXPECT_NEAR(sum, steps.mean_ms(), 1e-9);
}

TEST(Steps, NoStepsGiveNothing) {
  const auto steps = find_steps(model::TrainingProcess{});
  EXPECT_FALSE(steps.known());
  EXPECT_EQ(steps.mean_ms(), 0);
}

TEST(Spread, HasItsPercentiles) {
  std::vector<double> values;
  for (int i = 0; i <= 100; ++i) values.push_back(i);
  const auto spread = spread_of(values);
  EXPECT_DOUBLE_EQ(spread.median, 50);
  EXPECT_DOUBLE_EQ(spread.p05, 5);
  EXPECT_DOUBLE_EQ(spread.p95, 95);
  EXPECT_EQ(spread.count, 101U);
  EXPECT_EQ(spread_of({}).count, 0U);
}

}  // namespace
}  // namespace fullwatt::explain
