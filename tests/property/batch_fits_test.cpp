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
  const auto probe = [&](std::uint64_t batch) -> base::Result<BatchProbe> {
    RC_ASSERT(training.peak(batch) <= card.bytes - card.others);  // no out-of-memory is provoked
    return BatchProbe{batch, training.peak(batch), training.speed(batch)};
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

TEST(BatchSize, AFailureAtTheStartIsTold) {
  const auto choice = find_batch(
      [](std::uint64_t) -> base::Result<BatchProbe> { return base::fail(base::Error::Kind::unavailable, "no GPU"); }, 8,
      1U << 30U);
  ASSERT_FALSE(choice.has_value());
  EXPECT_EQ(choice.error().message, "no GPU");
}

TEST(BatchSize, AFailureLaterKeepsWhatIsKnown) {
  const auto choice = find_batch(
      [](std::uint64_t batch) -> base::Result<BatchProbe> {
        if (batch > 16) return base::fail(base::Error::Kind::unavailable, "out of memory");
        return BatchProbe{batch, batch << 20U, static_cast<double>(batch)};
      },
      8, 1U << 30U);
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->batch, 16U);
}

}  // namespace
}  // namespace fullwatt::tune
