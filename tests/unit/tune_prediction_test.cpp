#include <gtest/gtest.h>

#include "fullwatt/tune/prediction.hpp"

namespace fullwatt::tune {
namespace {

model::Explanation image_training() {
  model::Explanation explanation;
  explanation.step_ms.mean = 100;
  explanation.kernels = {{"convolution", "fp32", false, 60, 50, ""}, {"elementwise", "fp32", false, 20, 90, ""}};
  model::Cause launching;
  launching.id = "launch-bound";
  launching.charged_ms = 8;
  explanation.causes.push_back(launching);
  model::Finding finding;
  finding.id = "loader-workers-zero";
  finding.gain_ms = 30;
  explanation.findings.push_back(finding);
  return explanation;
}

TEST(TunePrediction, AFixThatTakesAwayACostHasItsFigure) {
  const auto prediction = predict(image_training(), "loader-workers");
  EXPECT_EQ(prediction.ms, 30);
  EXPECT_FALSE(prediction.low_ms || prediction.high_ms);
  EXPECT_FALSE(predict(image_training(), "gc-freeze").ms) << "nothing was found that it would mend";
}

TEST(TunePrediction, AFixThatChangesKernelsHasAnInterval) {
  const auto bf16 = predict(image_training(), "bf16");
  EXPECT_LT(*bf16.low_ms, 0) << "conversions may cost more than they bring";
  EXPECT_GT(*bf16.high_ms, 0.9 * 60);
  EXPECT_LT(*bf16.high_ms, 60 + 20);
  const auto benchmark = predict(image_training(), "cudnn-benchmark");
  EXPECT_LT(*benchmark.high_ms, *bf16.high_ms);
  EXPECT_GT(*predict(image_training(), "compile").high_ms, 0.9 * 20 + 8) << "it launches less, too";
}

TEST(TunePrediction, OtherThreadsMayTakeAllComputingAwayUnlessAFindingKnowsBetter) {
  auto training = image_training();
  training.causes[0].id = "forward";
  const auto unknown = predict(training, "threads");
  EXPECT_NEAR(*unknown.high_ms, 8 + 5, 1e-9);
  EXPECT_NEAR(*unknown.low_ms, -(4 + 5), 1e-9);
  training.findings[0].id = "threads-oversubscribed";
  EXPECT_EQ(predict(training, "threads").ms, 30);
  EXPECT_FALSE(predict(training, "threads").high_ms);
}

TEST(TunePrediction, GraphsMayTakeAwayAllLaunchingAndHalfPrecisionMayAddToIt) {
  const auto graphs = predict(image_training(), "cuda-graphs");
  EXPECT_NEAR(*graphs.high_ms, 8 + 5, 1e-9);
  auto launching = image_training();
  launching.causes[0].charged_ms = 60;
  EXPECT_NEAR(*predict(launching, "bf16").low_ms, *predict(image_training(), "bf16").low_ms - 26, 1e-9);
}

TEST(TunePrediction, LaunchesThatKernelsHideMayShowWhenTheseAreShorter) {
  auto hidden = image_training();
  hidden.gpu_busy_ms = 90;
  hidden.example_step_ms = 110;  // recording takes its part
  hidden.example_step = {{"host", 0, 55, "launch-bound", ""}, {"host", 55, 55, "sync-drain", ""}};
  const auto shorter = 0.93 * 60 + 0.6 * 20;  // by half precision
  EXPECT_NEAR(launching_ms(hidden), 50 - (90 - shorter), 1e-9);
  EXPECT_NEAR(*predict(hidden, "cuda-graphs").high_ms, launching_ms(hidden) + 5, 1e-9);
  hidden.example_step[0].length_ms = 11;
  EXPECT_EQ(launching_ms(hidden), 8) << "what it costs now";
}

TEST(TunePrediction, ACacheTakesAwayAllWaitingForBatchesAndTheirCopies) {
  auto explanation = image_training();
  EXPECT_EQ(predict(explanation, "sample-cache").ms, 30) << "nothing more exact is known";
  for (const auto& [id, ms] : {std::pair("data-wait", 50.0), {"copy-wait", 2.0}, {"gpu-copy-h2d", 4.0}}) {
    model::Cause cause;
    cause.id = id;
    cause.charged_ms = ms;
    explanation.causes.push_back(cause);
  }
  EXPECT_NEAR(*predict(explanation, "sample-cache").ms, 56, 1e-9);
  explanation.causes[1].gain_alone_ms = 45;  // the GPU works on meanwhile
  EXPECT_NEAR(*predict(explanation, "sample-cache").ms, 51, 1e-9);
  explanation.findings.clear();
  EXPECT_FALSE(predict(explanation, "sample-cache").ms) << "nothing was found that it would mend";
}

TEST(TunePrediction, PaddingStaysWithACache) {
  auto explanation = image_training();
  model::Cause waiting;
  waiting.id = "data-wait";
  waiting.charged_ms = 60;
  explanation.causes.push_back(waiting);
  explanation.padding_ms = 50;
  EXPECT_NEAR(*predict(explanation, "sample-cache").ms, 10, 1e-9);
  explanation.padding_ms = 70;
  EXPECT_EQ(predict(explanation, "sample-cache").ms, 0) << "workers did it before";
}

TEST(TunePrediction, ACacheGivesWhatAStepWithoutALoaderIsShorter) {
  auto explanation = image_training();
  model::Cause waiting;
  waiting.id = "data-wait";
  waiting.charged_ms = 60;
  model::Cause copying;
  copying.id = "gpu-copy-h2d";
  copying.charged_ms = 4;
  explanation.causes.insert(explanation.causes.end(), {waiting, copying});
  explanation.ceiling_ms = 20;
  EXPECT_NEAR(*predict(explanation, "sample-cache").ms, 100 - 20 + 4, 1e-9) << "workers leave the CPUs to the others";
  explanation.ceiling_ms = 101;
  EXPECT_NEAR(*predict(explanation, "sample-cache").ms, 4, 1e-9);
}

TEST(TunePrediction, NothingGivesMoreThanTheStepAndItsNoise) {
  auto explanation = image_training();
  explanation.findings[0].gain_ms = 400;
  explanation.kernels[0].ms = 400;
  EXPECT_EQ(predict(explanation, "loader-workers").ms, 100);
  EXPECT_LE(*predict(explanation, "bf16").high_ms, 105);
}

TEST(TunePrediction, WithoutKernelTimesTheComputingIsAllThatIsKnown) {
  auto explanation = image_training();
  explanation.kernels.clear();
  explanation.causes[0].id = "forward";
  explanation.causes[0].charged_ms = 50;
  const auto prediction = predict(explanation, "channels-last");
  EXPECT_NEAR(*prediction.high_ms, 45, 1e-9);
  EXPECT_NEAR(*prediction.low_ms, -30, 1e-9);
}

}  // namespace
}  // namespace fullwatt::tune
