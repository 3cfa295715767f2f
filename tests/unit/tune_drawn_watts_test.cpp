#include <cmath>
#include <fstream>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "fullwatt/tune/drawn_watts.hpp"

namespace fullwatt::tune {
namespace {

constexpr double kMs = 1e6;

/// A GPU that draws so many watts without and with a fix, in turns, give or take `noise`; its driver keeps what was
/// drawn 20 ms before every 20 ms.
struct Turns {
  model::Run run;
  std::vector<Stretch> without, with;

  Turns(double without_watts, double with_watts, int pairs, double turn_ms = 260, double noise = 10) {
    double at = 1000;
    for (int i = 0; i < 2 * pairs; ++i, at += turn_ms)
      (i % 2 == 0 ? without : with).push_back({at * kMs, (at + turn_ms) * kMs});
    std::mt19937 random(1);
    for (int ms = 5; ms < at + 100; ms += 20) {
      const auto turn = static_cast<int>(std::floor((ms - 20 - 1000) / turn_ms));
      const auto unrest = noise * (static_cast<double>(random() % 2001) / 1000 - 1);
      run.power_samples.push_back({.at_ns = static_cast<std::uint64_t>(ms * kMs),
                                   .watts = (ms < 1020       ? 90
                                             : turn % 2 == 0 ? without_watts
                                                             : with_watts) +
                                            unrest});
    }
  }
  std::optional<model::TurnWatts> watts(int gpu = 0) const { return turn_watts(run, gpu, without, with); }
};

TEST(TurnWatts, AreThoseOfTheTurnsThoughTheDriverIsLate) {
  const auto watts = Turns(120, 480, 5).watts();
  ASSERT_TRUE(watts);
  EXPECT_NEAR(watts->without, 120, 5);
  EXPECT_NEAR(watts->with, 480, 5);
}

TEST(TurnWatts, AreToldWhereAFixAddsNone) {
  const auto watts = Turns(690, 690, 5).watts();
  ASSERT_TRUE(watts);
  EXPECT_NEAR(watts->with - watts->without, 0, 10);
}

TEST(TurnWatts, AreNotToldWhereTheyChangeByThemselves) {
  EXPECT_FALSE(Turns(300, 305, 5, 60, 250).watts());
}

TEST(TurnWatts, AreNotMadeUp) {
  EXPECT_FALSE(Turns(120, 280, 2).watts()) << "two pairs";
  EXPECT_FALSE(Turns(120, 280, 12, 25).watts()) << "turns that are over before the driver shows them";
  EXPECT_FALSE(Turns(120, 280, 5).watts(1)) << "another GPU";
}

TEST(TurnWatts, AreCountedWhereTheDriverKeepsNothing) {
  auto turns = Turns(120, 280, 12);
  turns.run.power_samples.clear();
  double energy_mj = 0;
  for (int ms = 0; ms < 8000; ms += 10) {
    const auto turn = static_cast<int>(std::floor((ms - 1000) / 260.0));
    energy_mj += 10 * (turn % 2 == 0 ? 120 : 280);
    if (ms % 100 != 0) continue;
    model::GpuSample sample;
    sample.at_ns = static_cast<std::uint64_t>(ms * kMs);
    sample.energy_mj = static_cast<std::uint64_t>(energy_mj);
    turns.run.gpu_samples.push_back(sample);
  }
  ASSERT_TRUE(turns.watts());
  EXPECT_GT(turns.watts()->with, turns.watts()->without + 100);
  EXPECT_TRUE(watts_over(turns.run, 0, {1.2e9, 7e9}));
}

/// As they were recorded on an H200: turns of a small convolutional network, and of a larger one. What a fix does to
/// the power is told, also that it is nothing; not where the turns of compiled kernels differ from each other.
TEST(TurnWatts, AreToldOfRecordedTurns) {
  const std::map<std::string, int> rounded{{"tf32", 0},         {"bf16", -60},          {"cudnn-benchmark", 10},
                                           {"cuda-graphs", 20}, {"backward-inline", 0}, {"fused-optimizer", 0}};
  std::ifstream file(FULLWATT_TURNS);
  const auto recorded = nlohmann::json::parse(file);
  std::map<std::string, std::vector<std::optional<double>>> added;
  for (const auto& start : recorded["starts"]) {
    model::Run run;
    for (const auto& sample : start["power"])
      run.power_samples.push_back(
          {.at_ns = static_cast<std::uint64_t>(sample[0].get<double>() * kMs), .watts = sample[1]});
    const auto stretches = [](const nlohmann::json& turns) {
      std::vector<Stretch> found;
      for (const auto& turn : turns) found.push_back({turn[0].get<double>() * kMs, turn[1].get<double>() * kMs});
      return found;
    };
    for (const auto& turns : start["turns"]) {
      const auto watts = turn_watts(run, 0, stretches(turns["without"]), stretches(turns["with"]));
      added[turns["fix"]].push_back(watts ? std::optional(watts->with - watts->without) : std::nullopt);
    }
  }
  for (const auto& [fix, watts] : rounded) {
    ASSERT_FALSE(added[fix].empty()) << fix;
    for (const auto& one : added[fix]) {
      ASSERT_TRUE(one) << fix;
      EXPECT_NEAR(*one, watts, 10) << fix;
    }
  }
  EXPECT_NEAR(*added["channels-last"].at(0), -20, 10);
  EXPECT_NEAR(*added["channels-last"].at(1), -105, 10) << "of the larger network";
  EXPECT_FALSE(added["compile"].at(0));
}

TEST(WattsOver, AreTheMeanOfAShortStart) {
  const Turns turns(120, 480, 5);
  const auto first = watts_over(turns.run, 0, turns.with.front());
  ASSERT_TRUE(first);
  EXPECT_NEAR(*first, 480, 5);
  EXPECT_FALSE(watts_over(turns.run, 0, {1e9, 1.05e9})) << "too short, and no counter";
}

}  // namespace
}  // namespace fullwatt::tune
