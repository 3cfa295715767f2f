#include <gtest/gtest.h>

#include "fullwatt/model/nvml.hpp"
#include "fullwatt/tune/cooling.hpp"

namespace fullwatt::tune {
namespace {

model::GpuSample at(int celsius, std::uint64_t reasons = 0) {
  model::GpuSample sample;
  sample.temperature_c = celsius;
  sample.throttle_reasons = reasons;
  return sample;
}

/// A card whose temperatures are these, one after the other, and what was said of it.
struct Card {
  std::vector<model::GpuSample> samples;
  std::size_t asked = 0;
  std::vector<std::string> said;

  void wait(bool is_over = false) {
    wait_until_cool({.newest = [&]() -> std::optional<model::GpuSample> {
                       return asked < samples.size() ? std::optional(samples[asked++]) : std::nullopt;
                     },
                     .say = [&](const std::string& text) { said.push_back(text); },
                     .is_over = [=] { return is_over; },
                     .pause = std::chrono::milliseconds(0),
                     .most_pauses = 5});
  }
};

TEST(CoolingTest, ACoolCardIsNotWaitedFor) {
  Card card{{at(84), at(90)}};
  card.wait();
  EXPECT_EQ(card.asked, 1U);
  EXPECT_TRUE(card.said.empty());
}

TEST(CoolingTest, AHotOneIsUntilItIsWellBelow) {
  Card card{{at(87), at(84), at(81), at(79), at(70)}};
  card.wait();
  EXPECT_EQ(card.asked, 4U);
  EXPECT_EQ(card.said, std::vector<std::string>{"the card is at 87 °C: waits until it is cooler"});
}

TEST(CoolingTest, SoIsOneThatHeatSlowsDown) {
  Card card{{at(75, model::clock_event::kSwThermal), at(75)}};
  card.wait();
  EXPECT_EQ(card.asked, 2U);
}

TEST(CoolingTest, NobodyWaitsForeverOrAgainstTheUsersWill) {
  Card hot{std::vector(20, at(90))};
  hot.wait();
  EXPECT_EQ(hot.asked, 6U);
  Card unwanted{std::vector(20, at(90))};
  unwanted.wait(true);
  EXPECT_EQ(unwanted.asked, 1U);
}

TEST(CoolingTest, WithoutAGpuThereIsNothingToWaitFor) {
  Card none;
  none.wait();
  EXPECT_TRUE(none.said.empty());
}

}  // namespace
}  // namespace fullwatt::tune
