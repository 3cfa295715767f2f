#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>

#include <gtest/gtest.h>

#include "fullwatt/engine/data/order.hpp"

namespace fullwatt::engine {
namespace {

using Samples = std::vector<std::int64_t>;

Samples whole(const Sequence& sequence) {
  return sequence.part(0, sequence.size());
}

/// How far counts are from being alike: chi squared, as deviations from what chance alone gives. The seeds are fixed.
double unlikeness(const std::vector<double>& counts, double expected, double freedom) {
  double chi_squared = 0;
  for (const auto count : counts) chi_squared += (count - expected) * (count - expected) / expected;
  return (chi_squared - freedom) / std::sqrt(2 * freedom);
}

TEST(OrderTest, EachSampleComesOnce) {
  for (const auto count : {2, 3, 5, 63, 64, 65, 1000, 4096, 4097, 100'000}) {
    auto samples = whole(Order(count, true, 7).epoch(3));
    EXPECT_TRUE(count < 5 || !std::ranges::is_sorted(samples)) << count;
    std::ranges::sort(samples);
    EXPECT_EQ(samples, whole(Order(count, false, 7).epoch(3))) << count;
  }
}

TEST(OrderTest, SeedAndEpochAloneDecide) {
  const auto samples = whole(Order(100, true, 7).epoch(3));
  EXPECT_EQ(samples, whole(Order(100, true, 7).epoch(3)));
  EXPECT_NE(samples, whole(Order(100, true, 8).epoch(3)));
  EXPECT_NE(samples, whole(Order(100, true, 7).epoch(4)));
  EXPECT_NE(samples, whole(Order(100, true, 7 + (1ULL << 32U)).epoch(3)));
}

TEST(OrderTest, ItIsTheSameOnEveryMachine) {
  EXPECT_EQ(whole(Order(8, true, 1).epoch(0)), (Samples{0, 5, 7, 3, 1, 2, 4, 6}));
  EXPECT_EQ(Order(100'000, true, 1).epoch(2).part(0, 4), (Samples{35'118, 52'630, 96'928, 40'347}));
}

TEST(OrderTest, PartsAreThoseOfTheWhole) {
  const auto sequence = Order(1000, true, 1).epoch(0);
  const auto all = whole(sequence);
  for (const auto& [begin, end] :
       std::vector<std::pair<std::size_t, std::size_t>>{{700, 710}, {0, 10}, {999, 1000}, {5, 5}})
    EXPECT_EQ(sequence.part(begin, end), Samples(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                                 all.begin() + static_cast<std::ptrdiff_t>(end)));
}

TEST(OrderTest, EachOrderIsAsLikely) {
  for (const auto& [samples, orders] :
       std::map<std::int64_t, std::size_t>{{2, 2}, {3, 6}, {4, 24}, {5, 120}, {6, 720}}) {
    constexpr int kEpochs = 72'000;
    std::map<Samples, double> counts;
    for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) ++counts[whole(Order(samples, true, 5).epoch(epoch))];
    ASSERT_EQ(counts.size(), orders);
    const auto times = counts | std::views::values;
    const auto expected = kEpochs / static_cast<double>(orders);
    EXPECT_LT(unlikeness({times.begin(), times.end()}, expected, static_cast<double>(orders) - 1), 4) << samples;
  }
}

/// As in every shuffled deck: where a sample comes, and which one comes after it, is as likely as anything else.
TEST(OrderTest, NeitherPlaceNorNeighbourIsMoreLikely) {
  constexpr std::size_t kBins = 32;
  for (const std::size_t samples : {32, 320, 3200, 4128, 128'000}) {
    std::vector<double> places(kBins * kBins), neighbours(kBins * kBins);
    const auto epochs = std::max<std::size_t>(4, 400'000 / samples);
    const auto bin = [&](auto sample) { return static_cast<std::size_t>(sample) * kBins / samples; };
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      const auto all = whole(Order(static_cast<std::int64_t>(samples), true, 9).epoch(epoch));
      for (std::size_t place = 0; place < samples; ++place) ++places[bin(place) * kBins + bin(all[place])];
      for (std::size_t place = 1; place < samples; ++place) ++neighbours[bin(all[place - 1]) * kBins + bin(all[place])];
    }
    const auto each = static_cast<double>(epochs * samples) / (kBins * kBins);
    EXPECT_LT(unlikeness(places, each, (kBins - 1) * (kBins - 1)), 4) << samples;
    if (samples < 4000) continue;  // of few samples it shows that none is beside itself
    EXPECT_LT(unlikeness(neighbours, each, kBins * kBins - 1), 4) << samples;
  }
}

TEST(OrderTest, NothingAndOne) {
  EXPECT_TRUE(whole(Order(0, true, 1).epoch(0)).empty());
  EXPECT_EQ(whole(Order(1, true, 1).epoch(0)), Samples{0});
}

}  // namespace
}  // namespace fullwatt::engine
