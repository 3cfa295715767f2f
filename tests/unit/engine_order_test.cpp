#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "fullwatt/engine/data/order.hpp"

namespace fullwatt::engine {
namespace {

using Samples = std::vector<std::int64_t>;

Samples part(Sequence& sequence, std::size_t begin, std::size_t end) {
  const auto samples = sequence.part(begin, end);
  return {samples.begin(), samples.end()};
}

Samples whole(Sequence sequence) {
  return part(sequence, 0, sequence.size());
}

TEST(OrderTest, EachSampleComesOnce) {
  auto samples = whole(Order(1000, true, 7).epoch(3));
  EXPECT_FALSE(std::ranges::is_sorted(samples));
  std::ranges::sort(samples);
  EXPECT_EQ(samples, whole(Order(1000, false, 7).epoch(3)));
}

TEST(OrderTest, SeedAndEpochAloneDecide) {
  const auto samples = whole(Order(100, true, 7).epoch(3));
  EXPECT_EQ(samples, whole(Order(100, true, 7).epoch(3)));
  EXPECT_NE(samples, whole(Order(100, true, 8).epoch(3)));
  EXPECT_NE(samples, whole(Order(100, true, 7).epoch(4)));
  EXPECT_NE(samples, whole(Order(100, true, 7 + (1ULL << 32U)).epoch(3)));
}

TEST(OrderTest, ItIsTheSameOnEveryMachine) {
  EXPECT_EQ(whole(Order(8, true, 1).epoch(0)), (Samples{3, 0, 2, 1, 4, 6, 7, 5}));
}

TEST(OrderTest, PartsAreThoseOfTheWholeHoweverTheyAreAskedFor) {
  const Order order(1000, true, 1);
  const auto all = whole(order.epoch(0));
  auto sequence = order.epoch(0);
  for (const auto& [begin, end] : std::vector<std::pair<std::size_t, std::size_t>>{
           {700, 710}, {0, 10}, {710, 1000}, {999, 1000}, {5, 5}, {0, 1000}})
    EXPECT_EQ(part(sequence, begin, end), Samples(all.begin() + static_cast<std::ptrdiff_t>(begin),
                                                  all.begin() + static_cast<std::ptrdiff_t>(end)));
}

TEST(OrderTest, EachOrderIsAsLikely) {
  std::map<Samples, int> counts;
  constexpr int kEpochs = 24'000;
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) ++counts[whole(Order(4, true, 5).epoch(epoch))];
  ASSERT_EQ(counts.size(), 24U);
  double chi_squared = 0;
  for (const auto& [samples, count] : counts) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi_squared, 49.7) << "99.9 % of chi squared with 23 degrees of freedom; the seeds are fixed";
}

TEST(OrderTest, NothingAndOne) {
  EXPECT_TRUE(whole(Order(0, true, 1).epoch(0)).empty());
  EXPECT_EQ(whole(Order(1, true, 1).epoch(0)), Samples{0});
}

}  // namespace
}  // namespace fullwatt::engine
