// When windows open and close, told by steps and a clock that the test holds.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fullwatt/record/hang.hpp"
#include "fullwatt/record/recorder/recorder.h"
#include "fullwatt/record/recorder/schedule.hpp"

namespace fullwatt::record {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

struct Event {
  std::uint64_t step;
  std::uint64_t at_ns;
  std::uint32_t actions;
};

/// Runs steps of one length and gathers the actions of windows.
std::vector<Event> run(Schedule& schedule, std::uint64_t steps, std::uint64_t length_ns) {
  std::vector<Event> events;
  std::uint64_t now = 1;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    const auto actions = schedule.after_step(now += length_ns, true);
    if ((actions & ~static_cast<std::uint32_t>(FULLWATT_MEASURE)) != 0) events.push_back({step, now, actions});
  }
  return events;
}

std::vector<Event> only(const std::vector<Event>& events, std::uint32_t action) {
  std::vector<Event> some;
  for (const auto& event : events) {
    if ((event.actions & action) != 0) some.push_back(event);
  }
  return some;
}

TEST(ScheduleTest, ThePairComesAfterTheWarmUpAndLastsAtMostTwentySteps) {
  Schedule schedule({});
  const auto events = run(schedule, 400, 50 * kMs);
  const auto times = only(events, FULLWATT_OPEN_TIMES);
  const auto causes = only(events, FULLWATT_OPEN_CAUSES);
  const auto closes = only(events, FULLWATT_CLOSE);
  ASSERT_EQ(times.size(), 1U);
  ASSERT_EQ(causes.size(), 1U);
  ASSERT_EQ(closes.size(), 2U);
  EXPECT_GE(times[0].at_ns, Schedule::kWarmUpNs);
  EXPECT_EQ(closes[0].step - times[0].step, Schedule::kWindowSteps);
  EXPECT_GT(causes[0].step, closes[0].step);
  EXPECT_EQ(closes[1].step - causes[0].step, Schedule::kWindowSteps);
}

TEST(ScheduleTest, TwoOptimisersThatTakeTurnsAreSteadyToo) {
  Schedule schedule({});
  bool opened = false;
  std::uint64_t now = 1;
  for (int step = 0; step < 200 && !opened; ++step) {
    opened = (schedule.after_step(now += step % 2 == 0 ? 45 * kMs : 5 * kMs, true) & FULLWATT_OPEN_TIMES) != 0;
  }
  EXPECT_TRUE(opened);
  EXPECT_LT(now, Schedule::kLongestWarmUpNs);
}

TEST(ScheduleTest, LongStepsMakeShortWindows) {
  Schedule schedule({});
  const auto events = run(schedule, 60, 2000 * kMs);
  const auto times = only(events, FULLWATT_OPEN_TIMES);
  const auto closes = only(events, FULLWATT_CLOSE);
  ASSERT_FALSE(closes.empty());
  EXPECT_EQ(closes[0].step - times[0].step, 2U);
}

TEST(ScheduleTest, OfLongStepsFewAreEnough) {
  const auto first_end = [](std::uint64_t length_ns) {
    Schedule schedule({.windows = false, .stop_after_steps = 40, .enough_ns = 20'000 * kMs});
    const auto events = run(schedule, 40, length_ns);
    const auto enough = only(events, FULLWATT_ENOUGH);
    const auto stop = only(events, FULLWATT_STOP);
    return enough.empty() ? stop.at(0).step : std::min(enough[0].step, stop.at(0).step);
  };
  EXPECT_EQ(first_end(400 * kMs), 40U);
  EXPECT_EQ(first_end(800 * kMs), 26U) << "25 of them behind the first";
  EXPECT_EQ(first_end(8000 * kMs), Schedule::kEnoughSteps);
}

TEST(ScheduleTest, WhoWaitsForTimeIsAskedAtEveryStep) {
  Schedule schedule({.windows = false, .stop_after_steps = 40, .enough_ns = 20'000 * kMs});
  static_cast<void>(run(schedule, 10, 100 * kMs));
  EXPECT_EQ(schedule.quiet_steps(), 1U);
}

TEST(ScheduleTest, ShortStepsGetSeveralWindowsOfCauses) {
  Schedule schedule({});
  const auto events = run(schedule, 5000, kMs);
  EXPECT_EQ(only(events, FULLWATT_OPEN_TIMES).size(), 1U);
  EXPECT_GT(only(events, FULLWATT_OPEN_CAUSES).size(), 3U);
  EXPECT_LE(only(events, FULLWATT_OPEN_CAUSES).size(), 6U);
}

TEST(ScheduleTest, LaterPairsAreEverFurtherApart) {
  Schedule schedule({});
  const auto times = only(run(schedule, 40'000, 50 * kMs), FULLWATT_OPEN_TIMES);
  ASSERT_GE(times.size(), 4U);
  for (std::size_t i = 2; i < times.size(); ++i) {
    EXPECT_GT(times[i].at_ns - times[i - 1].at_ns, times[i - 1].at_ns - times[i - 2].at_ns);
  }
}

TEST(ScheduleTest, APairThatCostsMuchIsNotRepeatedSoon) {
  Schedule schedule({});
  std::vector<Event> opened;
  std::uint64_t now = 1;
  bool in_window = false;
  std::uint64_t cost = 0;
  for (std::uint64_t step = 1; step < 20'000 && opened.size() < 2; ++step) {
    const auto extra = in_window ? 15 * kMs : 0;
    if (opened.size() == 1) cost += extra;
    const auto actions = schedule.after_step(now += 10 * kMs + extra, true);
    in_window =
        (in_window || (actions & (FULLWATT_OPEN_TIMES | FULLWATT_OPEN_CAUSES)) != 0) && (actions & FULLWATT_CLOSE) == 0;
    if ((actions & FULLWATT_OPEN_TIMES) != 0) opened.push_back({step, now, actions});
  }
  ASSERT_EQ(opened.size(), 2U);
  EXPECT_GT(cost, 300 * kMs);
  EXPECT_GE(opened[1].at_ns - opened[0].at_ns, 190 * cost);
}

TEST(ScheduleTest, EveryWindowThatOpensCloses) {
  for (const std::uint64_t length : {kMs / 10, kMs, 20 * kMs, 700 * kMs, 5000 * kMs}) {
    Schedule schedule({});
    bool open = false;
    std::uint64_t now = 1;
    for (int step = 0; step < 3000; ++step) {
      const auto actions = schedule.after_step(now += length, step % 997 != 0);
      const bool opens = (actions & (FULLWATT_OPEN_TIMES | FULLWATT_OPEN_CAUSES)) != 0;
      const bool closes = (actions & FULLWATT_CLOSE) != 0;
      EXPECT_FALSE(opens && open);
      EXPECT_FALSE(closes && !open);
      open = (open || opens) && !closes;
    }
  }
}

TEST(ScheduleTest, WithoutWindowsOnlyMeasuringRemains) {
  Schedule schedule({.windows = false});
  for (const auto& event : run(schedule, 2000, 10 * kMs)) EXPECT_EQ(event.actions, std::uint32_t{FULLWATT_COUNT});
}

TEST(ScheduleTest, ItStopsAfterTheStepsAskedFor) {
  Schedule schedule({.stop_after_steps = 33});
  const auto stops = only(run(schedule, 33, 10 * kMs), FULLWATT_STOP);
  ASSERT_EQ(stops.size(), 1U);
  EXPECT_EQ(stops[0].step, 33U);
}

TEST(ScheduleTest, TheCeilingComesAfterTheFirstPairAndEndsTheRun) {
  Schedule schedule({.ceiling = true});
  const auto events = run(schedule, 400, 50 * kMs);
  const auto begin = only(events, FULLWATT_CEILING);
  const auto stop = only(events, FULLWATT_STOP);
  ASSERT_EQ(begin.size(), 1U);
  ASSERT_FALSE(stop.empty());
  EXPECT_GE(stop[0].step - begin[0].step, Schedule::kCeilingSteps);
}

TEST(ScheduleTest, TheCeilingComesAfterTheStepsThatWereAskedForAndClosesAnOpenWindow) {
  Schedule schedule({.stop_after_steps = 33, .ceiling = true});
  const auto events = run(schedule, 400, 50 * kMs);
  const auto begin = only(events, FULLWATT_CEILING);
  const auto stop = only(events, FULLWATT_STOP);
  ASSERT_EQ(begin.size(), 1U);
  EXPECT_EQ(begin[0].step, 33U);
  EXPECT_TRUE(begin[0].actions & FULLWATT_CLOSE) << "it is in the middle of a window";
  ASSERT_FALSE(stop.empty());
  EXPECT_EQ(stop[0].step, 33 + Schedule::kCeilingSteps);
  EXPECT_TRUE(only({std::ranges::find(events, 33U, &Event::step) + 1, events.end()}, FULLWATT_OPEN_TIMES).empty());
}

TEST(ScheduleTest, TheCeilingOfLongStepsHasFewOfThemAndThatOfShortOnesItsTime) {
  for (const auto& [length, steps] :
       {std::pair(3'000 * kMs, std::uint64_t{6}), std::pair(1 * kMs, std::uint64_t{2'000})}) {
    Schedule schedule({.windows = false, .stop_after_steps = 10, .ceiling = true});
    const auto stop = only(run(schedule, 3'000, length), FULLWATT_STOP);
    ASSERT_FALSE(stop.empty());
    EXPECT_EQ(stop[0].step, 10 + steps);
  }
}

TEST(HangWatchTest, TenTimesTheMedianIsAHangAndIsToldOnce) {
  HangWatch watch;
  const std::uint64_t step = 5'000 * kMs;
  EXPECT_FALSE(watch.hangs(49 * 1000 * kMs, 20, 0, step));
  EXPECT_TRUE(watch.hangs(51 * 1000 * kMs, 20, 0, step));
  EXPECT_FALSE(watch.hangs(60 * 1000 * kMs, 20, 0, step));
  EXPECT_TRUE(watch.hangs(200 * 1000 * kMs, 21, 100 * 1000 * kMs, step));
}

TEST(HangWatchTest, ShortStepsAreGivenTenSeconds) {
  HangWatch watch;
  EXPECT_FALSE(watch.hangs(9'000 * kMs, 20, 0, kMs));
  EXPECT_TRUE(watch.hangs(10'001 * kMs, 20, 0, kMs));
}

TEST(HangWatchTest, ARunThatHardlyBeganDoesNotHang) {
  HangWatch watch;
  EXPECT_FALSE(watch.hangs(100'000 * kMs, 2, 0, kMs));
}

TEST(ScheduleTest, StepsMayBeWrittenLaterOnlyWhileNothingIsDue) {
  Schedule with_windows({});
  Schedule without({.windows = false});
  Schedule ends({.windows = false, .stop_after_steps = 33});
  for (std::uint64_t step = 1; step <= 10; ++step) {
    for (auto* schedule : {&with_windows, &without, &ends}) schedule->after_step(step * kMs, true);
  }
  EXPECT_EQ(with_windows.quiet_steps(), 1U) << "a window may open after any step";
  EXPECT_GT(without.quiet_steps(), 1'000U);
  EXPECT_EQ(ends.quiet_steps(), 23U) << "the last one must be seen at once";
}

}  // namespace
}  // namespace fullwatt::record
