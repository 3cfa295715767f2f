// P7: for any training and any card the batch that is chosen fits, none is tried that does not, and it is the smallest
// one on the plateau of throughput.

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "fullwatt/tune/batch_size.hpp"

namespace fullwatt::tune {
namespace {

constexpr double kMegabyte = 1U << 20U;
constexpr double kGigabyte = 1U << 30U;

/// A training whose memory and speed are known.
struct Training {
  double fixed_bytes = 0;
  double sample_bytes = 0;
  double jump_bytes = 0;  ///< of a library that chooses another algorithm
  std::uint64_t jump_at = 0;
  double fixed_s = 0;
  double sample_s = 0;
  double usual_batch = 0;  ///< beyond this, larger ones only take longer

  std::uint64_t peak(std::uint64_t batch) const {
    const double bytes =
        fixed_bytes + sample_bytes * static_cast<double>(batch) + (batch >= jump_at ? jump_bytes : 0.0);
    constexpr double kPiece = 2 * kMegabyte;  // the allocator's
    return static_cast<std::uint64_t>(std::ceil(bytes / kPiece) * kPiece);
  }
  double speed(std::uint64_t batch) const {
    const auto samples = static_cast<double>(batch);
    return samples / (fixed_s + sample_s * std::max(samples, usual_batch));
  }
};

Training any_training() {
  const auto between = [](int low, int high) { return static_cast<double>(*rc::gen::inRange(low, high)); };
  Training training;
  training.fixed_bytes = std::exp2(between(20, 34)) * between(100, 200) / 100;
  training.sample_bytes = std::exp2(between(10, 29)) * between(100, 200) / 100;
  training.jump_bytes = between(0, 256) * kMegabyte;
  training.jump_at = *rc::gen::inRange<std::uint64_t>(1, 600);
  training.fixed_s = between(1, 50) / 1e3;
  training.sample_s = std::exp2(-between(5, 22));
  training.usual_batch = std::exp2(between(0, 10));
  return training;
}

struct Card {
  std::uint64_t bytes = 0;
  std::uint64_t others = 0;
};

Card any_card() {
  const auto gigabytes = *rc::gen::element(4, 6, 8, 12, 16, 24, 32, 48, 80, 141);
  const auto others = *rc::gen::element(0, 0, 1, 2);
  return {static_cast<std::uint64_t>(gigabytes * kGigabyte), static_cast<std::uint64_t>(others * kGigabyte)};
}

RC_GTEST_PROP(BatchSize, TheChosenOneFitsAndIsTheSmallestOnThePlateau, ()) {
  const auto training = any_training();
  const auto card = any_card();
  const auto usable = usable_bytes(card.bytes, card.others);
  const auto start = *rc::gen::element<std::uint64_t>(1, 2, 8, 32, 64);
  RC_PRE(training.peak(start) <= usable);
  const auto probe = [&](const BatchPrediction& asked) -> base::Result<BatchProbe> {
    RC_ASSERT(training.peak(asked.batch) <= card.bytes - card.others);  // no out-of-memory is provoked
    return BatchProbe{asked.batch, training.peak(asked.batch), training.speed(asked.batch)};
  };
  const auto choice = find_batch(probe, start, usable);
  RC_ASSERT(choice.has_value());
  RC_ASSERT(training.peak(choice->batch) <= card.bytes - card.others);
  double best = 0;
  for (const auto& tried : choice->probes) best = std::max(best, tried.samples_per_second);
  RC_ASSERT(training.speed(choice->batch) >= 0.97 * best - 1e-9);
  for (const auto& tried : choice->probes) {
    if (tried.batch < choice->batch) RC_ASSERT(tried.samples_per_second < 0.97 * best);
  }
  RC_TAG(choice->batch == start ? "stays" : "grows");
}

/// Of all that fit, whether they were tried or not.
double best_speed(const Training& training, std::uint64_t start, std::uint64_t usable) {
  double best = 0;
  for (std::uint64_t batch = start; batch <= 512 * start && training.peak(batch) <= usable; ++batch)
    best = std::max(best, training.speed(batch));
  return best;
}

RC_GTEST_PROP(BatchSize, NoneThatFitsIsMuchFaster, ()) {
  auto training = any_training();
  training.jump_bytes = 0;
  const auto card = any_card();
  const auto usable = usable_bytes(card.bytes, card.others);
  const auto start = *rc::gen::element<std::uint64_t>(2, 8, 32, 64);
  RC_PRE(training.peak(start) + 64 * kMegabyte <= usable);
  const auto choice = find_batch(
      [&](const BatchPrediction& asked) -> base::Result<BatchProbe> {
        return BatchProbe{asked.batch, training.peak(asked.batch), training.speed(asked.batch)};
      },
      start, usable);
  RC_ASSERT(choice.has_value());
  constexpr double kAsFast = 0.85;  // what the plateau, the caution and the last small step may take together
  RC_ASSERT(training.speed(choice->batch) >= kAsFast * best_speed(training, start, usable - 64 * kMegabyte));
}

RC_GTEST_PROP(BatchSize, WhatIsSaidBeforeATrialHolds, ()) {
  auto training = any_training();
  training.jump_bytes = 0;
  const auto usable = usable_bytes(any_card().bytes);
  const auto start = *rc::gen::element<std::uint64_t>(8, 32, 64);
  RC_PRE(training.peak(start) <= usable);
  const auto choice = find_batch(
      [&](const BatchPrediction& asked) -> base::Result<BatchProbe> {
        return BatchProbe{asked.batch, training.peak(asked.batch), training.speed(asked.batch)};
      },
      start, usable);
  RC_ASSERT(choice.has_value());
  for (const auto& tried : choice->probes) {
    if (tried.batch == start) continue;
    RC_ASSERT(tried.predicted.bytes.has_value());
    if (tried.predicted.is_bound) RC_ASSERT(static_cast<double>(tried.peak_bytes) <= *tried.predicted.bytes);
    RC_ASSERT(tried.predicted.low.has_value() == (tried.batch > start));
    if (!tried.predicted.low) continue;
    RC_ASSERT(tried.samples_per_second >= *tried.predicted.low);
    RC_ASSERT(tried.samples_per_second <= *tried.predicted.high);
  }
}

RC_GTEST_PROP(BatchSize, WhenOthersTakeMoreItGoesBackAndStaysInsideWhatIsLeft, ()) {
  auto training = any_training();
  training.sample_bytes = *rc::gen::inRange(8, 128) * kMegabyte;
  training.fixed_s = 1;  // so that it grows until the card is full
  const auto card = any_card();
  const auto start = *rc::gen::element<std::uint64_t>(2, 8, 32);
  const auto grows_at = *rc::gen::inRange<std::size_t>(1, 6);
  const auto others_then = card.others + card.bytes / *rc::gen::inRange<std::uint64_t>(2, 12);
  RC_PRE(training.peak(start) <= usable_bytes(card.bytes, others_then));
  std::size_t probes = 0;
  std::vector<std::uint64_t> ran_out;
  const auto probe = [&](const BatchPrediction& asked) -> base::Result<BatchProbe> {
    const auto others = probes++ < grows_at ? card.others : others_then;
    for (const auto failed : ran_out) RC_ASSERT(asked.batch < failed);
    BatchProbe measured{asked.batch, training.peak(asked.batch), training.speed(asked.batch)};
    measured.usable_bytes = usable_bytes(card.bytes, others);
    measured.ran_out = measured.peak_bytes > card.bytes - others;
    if (measured.ran_out) ran_out.push_back(asked.batch);
    return measured;
  };
  const auto choice = find_batch(probe, start, usable_bytes(card.bytes, card.others));
  RC_ASSERT(choice.has_value());
  RC_ASSERT(ran_out.size() <= 1U);  // that others take more can be a surprise once
  const auto others = probes <= grows_at ? card.others : others_then;
  RC_ASSERT(training.peak(choice->batch) <= card.bytes - others);
  RC_TAG(ran_out.empty() ? "had room" : "ran out");
}

RC_GTEST_PROP(BatchSize, MemoryIsPredictedFromSmallBatches, ()) {
  auto training = any_training();
  training.jump_bytes = 0;
  const auto first = *rc::gen::inRange<std::uint64_t>(8, 64);
  std::vector<BatchProbe> probes;
  for (const auto batch : {first, 2 * first}) probes.push_back({batch, training.peak(batch), 0});
  const auto line = memory_line(probes);
  const auto large = 4 * first;
  const double error = std::abs(line.at(large) - static_cast<double>(training.peak(large)));
  RC_ASSERT(error <= 0.03 * static_cast<double>(training.peak(large)) + 8 * kMegabyte);
}

RC_GTEST_PROP(BatchSize, AnEstimateFromTwoNumbersFitsAnOrdinaryNetwork, ()) {
  const auto card = any_card();
  const auto model = static_cast<std::uint64_t>(std::exp2(*rc::gen::inRange(20, 36)));
  const auto batch = estimated_batch(model, card.bytes);
  const double weights = 4.0 * static_cast<double>(model);
  if (batch == 0) {
    RC_ASSERT(weights + static_cast<double>(model) > static_cast<double>(usable_bytes(card.bytes)) ||
              usable_bytes(card.bytes) < 80 * kMegabyte);
  } else {
    RC_ASSERT(weights + static_cast<double>(batch * model) <= static_cast<double>(card.bytes));
  }
}

RC_GTEST_PROP(BatchSize, PartsMakeTheSameStepAndFit, ()) {
  const auto effective = *rc::gen::inRange<std::uint64_t>(1, 5000);
  const auto largest = *rc::gen::inRange<std::uint64_t>(1, 6000);
  const auto parts = accumulate(effective, largest);
  RC_ASSERT(parts.batch * parts.steps == effective);
  RC_ASSERT(parts.batch <= largest);
  for (std::uint64_t fewer = 1; fewer < parts.steps; ++fewer)
    RC_ASSERT(effective % fewer != 0 || effective / fewer > largest);
}

/// A training of 1 GB and 10 MB a sample.
base::Result<BatchProbe> probed(const BatchPrediction& asked) {
  const auto samples = static_cast<double>(asked.batch);
  return BatchProbe{asked.batch, static_cast<std::uint64_t>(1e9 + 1e7 * samples), samples / (1 + 0.01 * samples)};
}

TEST(BatchSize, ABatchWithoutRoomIsCutIntoTheFewestPartsThatHaveIt) {
  std::vector<BatchProbe> smaller;
  for (const std::uint64_t batch : {32, 64}) smaller.push_back(*probed({.batch = batch}));
  EXPECT_EQ(fewest_parts(1024, smaller, 7'000'000'000), 2U);
  EXPECT_EQ(fewest_parts(1024, smaller, 6'000'000'000), 4U) << "512 samples take 6.12 GB";
  EXPECT_EQ(fewest_parts(1024, smaller, 1'700'000'000), 16U);
  EXPECT_EQ(fewest_parts(1024, smaller, 1'000'000'000), 1024U) << "nothing fits";
}

TEST(BatchSize, AFailureAtTheStartIsTold) {
  const auto choice = find_batch(
      [](const auto&) -> base::Result<BatchProbe> { return base::fail(base::Error::Kind::unavailable, "no GPU"); }, 8,
      1U << 30U);
  ASSERT_FALSE(choice.has_value());
  EXPECT_EQ(choice.error().message, "no GPU");
}

TEST(BatchSize, AFailureLaterKeepsWhatIsKnown) {
  const auto choice = find_batch(
      [](const auto& asked) -> base::Result<BatchProbe> {
        if (asked.batch > 16) return base::fail(base::Error::Kind::unavailable, "there was no time left");
        return BatchProbe{asked.batch, asked.batch << 20U, static_cast<double>(asked.batch)};
      },
      8, 1U << 30U);
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->batch, 16U);
  EXPECT_EQ(choice->stopped, "there was no time left");
}

TEST(BatchSize, AfterOneThatRanOutOfMemoryASmallerOneIsTriedAndASecondEndsTheSearch) {
  std::vector<std::uint64_t> tried;
  const auto with_room_for = [&](std::uint64_t most) {
    tried.clear();
    return find_batch(
        [&tried, most](const auto& asked) {
          tried.push_back(asked.batch);
          auto measured = probed(asked);
          if (asked.batch > most) *measured = BatchProbe{.batch = asked.batch, .ran_out = true};
          return measured;
        },
        64, 5'000'000'000);
  };
  const auto once = with_room_for(250);
  ASSERT_TRUE(once.has_value());
  EXPECT_EQ(tried, (std::vector<std::uint64_t>{64, 128, 256, 192}));
  EXPECT_EQ(once->batch, 192U);
  EXPECT_EQ(once->why, "larger ones have no room");
  EXPECT_TRUE(once->probes[2].ran_out);
  const auto twice = with_room_for(130);
  ASSERT_TRUE(twice.has_value());
  EXPECT_EQ(tried, (std::vector<std::uint64_t>{64, 128, 256, 192}));
  EXPECT_EQ(twice->batch, 128U);
  EXPECT_FALSE(with_room_for(10).has_value());
}

TEST(BatchSize, ALargeModelGrowsAfterHalfItsBatchHasToldWhatASampleTakes) {
  std::vector<std::uint64_t> tried;
  const auto choice = find_batch(
      [&](const auto& asked) {
        tried.push_back(asked.batch);
        return probed(asked);
      },
      8, 1'400'000'000);
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(tried, (std::vector<std::uint64_t>{8, 4, 16, 32, 38}));
  EXPECT_EQ(choice->batch, 38U);
}

TEST(BatchSize, AnEvaluationIsCountedWhateverTheBatch) {
  std::vector<BatchProbe> probes{*probed({.batch = 8}), *probed({.batch = 16})};
  probes[0].evaluation_bytes = 3'000'000'000;
  EXPECT_DOUBLE_EQ(*predict_batch(probes, 32).bytes, 3e9);
  EXPECT_DOUBLE_EQ(*predict_batch(probes, 400).bytes, 5e9);
}

TEST(BatchSize, GapsAndLongerBatchesThanWereSeenAreLeftRoom) {
  EXPECT_EQ(usable_by_tensors(1000, 0, 0, true), 1000U);
  EXPECT_EQ(usable_by_tensors(1000, 8, 10, true), 800U);
  EXPECT_EQ(usable_by_tensors(1000, 8, 10, false), 640U);
}

}  // namespace
}  // namespace fullwatt::tune
