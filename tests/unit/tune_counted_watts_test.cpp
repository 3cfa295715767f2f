#include <cmath>

#include <gtest/gtest.h>

#include "fullwatt/tune/counted_watts.hpp"

namespace fullwatt::tune {
namespace {

constexpr double kMs = 1e6;
constexpr double kTurnMs = 260;

/// A GPU that draws so many watts without and with a fix, in turns; its counter moves every 100 ms, or now and then
/// when it is unsteady, and is read at other times. The first use of the fix, at the beginning, belongs to neither.
struct Turns {
  std::vector<model::GpuSample> samples;
  std::vector<Stretch> without, with;

  Turns(double without_watts, double with_watts, int pairs, bool is_unsteady = false) {
    double at = 1000;
    for (int i = 0; i < 2 * pairs; ++i, at += kTurnMs)
      (i % 2 == 0 ? without : with).push_back({at * kMs, (at + kTurnMs) * kMs});
    double energy_mj = 5e9;
    double shown_mj = energy_mj;
    int moves_at = 30;
    for (int ms = 0; ms < at + 500; ++ms) {
      const auto turn = static_cast<int>(std::floor((ms - 1000) / kTurnMs));
      energy_mj += ms < 1000 ? 600 : turn % 2 == 0 ? without_watts : with_watts;
      if (ms == moves_at) {
        shown_mj = energy_mj;
        moves_at += is_unsteady ? 40 + ms * 37 % 120 : 100;
      }
      if (ms % 103 != 0) continue;
      model::GpuSample sample;
      sample.at_ns = static_cast<std::uint64_t>(ms * kMs);
      sample.energy_mj = static_cast<std::uint64_t>(shown_mj);
      samples.push_back(sample);
    }
  }
};

TEST(CountedTurnWatts, AreToldApartThoughTheCounterIsSlowerThanTurns) {
  const Turns turns(120, 280, 12);
  const auto watts = counted_turn_watts(turns.samples, 0, turns.without, turns.with);
  ASSERT_TRUE(watts);
  EXPECT_NEAR(watts->without, 120, 20);
  EXPECT_NEAR(watts->with, 280, 20);
  const Turns unsteady(120, 480, 12, true);
  EXPECT_TRUE(counted_turn_watts(unsteady.samples, 0, unsteady.without, unsteady.with));
}

TEST(CountedTurnWatts, AreNotToldWhereTheDifferenceMayBeTheCounters) {
  const Turns same(300, 300, 12);
  EXPECT_FALSE(counted_turn_watts(same.samples, 0, same.without, same.with));
  const Turns alike(690, 700, 5, true);
  EXPECT_FALSE(counted_turn_watts(alike.samples, 0, alike.without, alike.with));
}

TEST(CountedWattsOver, AreThoseOfAStretchShorterThanTheDriversMean) {
  const Turns turns(120, 280, 12);
  const auto first_use = counted_watts_over(turns.samples, 0, {0.2e9, 0.9e9});
  ASSERT_TRUE(first_use);
  EXPECT_NEAR(*first_use, 600, 60);
  const auto all = counted_watts_over(turns.samples, 0, {1.2e9, 7e9});
  ASSERT_TRUE(all);
  EXPECT_NEAR(*all, 200, 15);
  EXPECT_FALSE(counted_watts_over(turns.samples, 0, {1.2e9, 1.4e9})) << "too short";
  EXPECT_FALSE(counted_watts_over(turns.samples, 1, {1.2e9, 7e9})) << "another GPU";
}

TEST(CountedTurnWatts, AreNotMadeUp) {
  const Turns few(120, 280, 1);
  EXPECT_FALSE(counted_turn_watts(few.samples, 0, few.without, few.with));
  auto turns = Turns(120, 280, 12);
  EXPECT_FALSE(counted_turn_watts(turns.samples, 1, turns.without, turns.with)) << "another GPU";
  EXPECT_FALSE(counted_turn_watts(turns.samples, 0, turns.without, {})) << "never on";
  for (auto& sample : turns.samples) sample.energy_mj = base::absent(base::Absent::unsupported);
  EXPECT_FALSE(counted_turn_watts(turns.samples, 0, turns.without, turns.with)) << "a card without the counter";
}

}  // namespace
}  // namespace fullwatt::tune
