#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "fullwatt/tune/proof.hpp"

namespace fullwatt::tune {
namespace {

using model::Trial;
using Verdict = model::LossProof::Verdict;

Trial trial(double step_ms, double loss = 1, std::size_t steps = 10) {
  Trial made;
  made.step_ms.assign(steps, step_ms);
  made.losses.assign(steps, loss);
  return made;
}

TEST(TuneProofTest, ASpeedupThatEveryPairShowsIsProved) {
  const std::vector<Pair> pairs{{trial(10), trial(5)}, {trial(12), trial(6.1)}, {trial(11), trial(5.4)}};
  const auto proof = prove_speed(pairs);
  EXPECT_NEAR(proof.speedup, 2.0, 0.05);
  EXPECT_GT(proof.low, 1.9);
  EXPECT_LT(proof.high, 2.1);
  EXPECT_TRUE(proof.is_faster());
}

TEST(TuneProofTest, PairsThatContradictEachOtherProveNothing) {
  const std::vector<Pair> pairs{{trial(10), trial(8)}, {trial(10), trial(11)}, {trial(10), trial(9)}};
  EXPECT_FALSE(prove_speed(pairs).is_faster());
}

TEST(TuneProofTest, OnePairIsNoProof) {
  const auto proof = prove_speed(std::vector<Pair>{{trial(10), trial(5)}});
  EXPECT_EQ(proof.speedup, 2);
  EXPECT_FALSE(proof.is_faster());
  EXPECT_FALSE(prove_speed({}).is_faster());
}

TEST(TuneProofTest, WhatTheMachineDoesToBothOfAPairFallsOut) {
  const std::vector<Pair> pairs{{trial(10), trial(9)}, {trial(20), trial(18)}, {trial(40), trial(36)}};
  EXPECT_TRUE(prove_speed(pairs).is_faster());
}

TEST(TuneProofTest, FailedTrialsDoNotCount) {
  auto failed = trial(1);
  failed.failure = "exit code 1";
  const std::vector<Pair> pairs{{trial(10), failed}, {trial(10), trial(5)}, {trial(10), trial(5)}};
  EXPECT_EQ(prove_speed(pairs).pairs, 2);
  EXPECT_EQ(prove_losses(pairs).pairs, 2);
}

TEST(TuneProofTest, EqualLossesAreNotWorse) {
  std::vector<Pair> pairs;
  for (const double loss : {1.0, 1.2, 1.0, 1.2, 1.1}) pairs.emplace_back(trial(1, loss), trial(1, loss));
  const auto proof = prove_losses(pairs);
  EXPECT_EQ(proof.verdict, Verdict::not_worse);
  EXPECT_NEAR(proof.margin, 0.1, 1e-3) << "the spread of the baseline";
  EXPECT_EQ(proof.steps, 10U);
  pairs.pop_back();
  EXPECT_EQ(prove_losses(pairs).verdict, Verdict::inconclusive) << "four pairs are too few";
}

TEST(TuneProofTest, ALossBeyondTheSeedsOwnSpreadIsWorse) {
  std::vector<Pair> pairs;
  for (const double loss : {1.0, 1.01, 0.99, 1.005, 0.995}) pairs.emplace_back(trial(1, loss), trial(1, loss + 0.2));
  EXPECT_EQ(prove_losses(pairs).verdict, Verdict::worse);
}

TEST(TuneProofTest, WhatSpreadsTooFarToTellIsInconclusive) {
  std::vector<Pair> pairs;
  double sign = 1;
  for (const double loss : {1.0, 1.01, 0.99, 1.005, 0.995})
    pairs.emplace_back(trial(1, loss), trial(1, loss + (sign = -sign) * 0.2));
  EXPECT_EQ(prove_losses(pairs).verdict, Verdict::inconclusive);
}

TEST(TuneProofTest, ALossThatIsNoNumberIsWorseUnlessItWasNoneBefore) {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(prove_losses(std::vector<Pair>{{trial(1), trial(1, nan)}, {trial(1), trial(1)}}).verdict, Verdict::worse);
  EXPECT_EQ(prove_losses(std::vector<Pair>{{trial(1, nan), trial(1, nan)}}).verdict, Verdict::unknown);
}

TEST(TuneProofTest, WithoutLossesNothingIsSaid) {
  const std::vector<Pair> pairs{{trial(1, 1, 0), trial(1, 1, 0)}};
  EXPECT_EQ(prove_losses(pairs).verdict, Verdict::unknown);
  EXPECT_FALSE(prove_losses(pairs).reason.empty());
}

TEST(TuneProofTest, LargerBatchesAreComparedByTheSample) {
  Pair pair;
  pair.first.samples_per_step = 16;
  pair.first.step_ms.assign(10, 2.0);
  pair.first.losses.assign(40, 1.0);
  pair.second.samples_per_step = 64;
  pair.second.step_ms.assign(10, 4.0);
  pair.second.losses.assign(10, 3.0);
  const std::vector<Pair> pairs(3, pair);
  EXPECT_NEAR(prove_speed(pairs).speedup, 2, 1e-9);
  EXPECT_NEAR(step_ms(pairs)->second, 1, 1e-9) << "for 16 samples";
  const auto loss = prove_losses(pairs);
  EXPECT_EQ(loss.steps, 40U);
  EXPECT_NEAR(loss.difference, 2, 1e-9);
}

TEST(TuneProofTest, TheWorkOfTheGpuIsTheMeanOfThePairsThatKnowIt) {
  std::vector<Pair> pairs(3);
  pairs[0].first.gpu.watts = 100;
  pairs[1].first.gpu.watts = 140;
  pairs[2].second.gpu.utilization_percent = 90;
  const auto [before, after] = gpu_work(pairs);
  EXPECT_NEAR(*before.watts, 120, 1e-9);
  EXPECT_FALSE(before.utilization_percent || after.watts);
  EXPECT_NEAR(*after.utilization_percent, 90, 1e-9);
}

}  // namespace
}  // namespace fullwatt::tune
