#include <gtest/gtest.h>

#include "fullwatt/tune/advice.hpp"

namespace fullwatt::tune {
namespace {

model::Explanation card(double busy, double memory, double compute, double cpus = 1) {
  model::Explanation explanation;
  explanation.resources = {{.id = "gpu-busy", .used = busy, .limit = 100},
                           {.id = "memory", .used = memory, .limit = 24},
                           {.id = "compute", .used = compute, .limit = 100},
                           {.id = "cpu", .used = cpus, .limit = 16}};
  return explanation;
}

std::vector<std::string> ids(const std::vector<model::Advice>& all) {
  std::vector<std::string> found;
  for (const auto& one : all) found.push_back(one.id);
  return found;
}

using Ids = std::vector<std::string>;

TEST(Advice, AnIdleCardCouldTrainSeveralOrALargerOne) {
  const auto all = advice(card(25, 3, 5));
  EXPECT_EQ(ids(all), (Ids{"several", "larger"}));
  EXPECT_EQ(all[0].facts.at("count"), "4") << "as many as its time has room for";
  EXPECT_EQ(all[1].facts.at("factor"), "7.2×");
  EXPECT_EQ(advice(card(25, 9, 5))[0].facts.at("count"), "2") << "as many as its memory has room for";
  EXPECT_EQ(advice(card(25, 3, 5, 8))[0].facts.at("count"), "2") << "as many as the CPUs can feed";
}

TEST(Advice, ACardThatIsBusyWithSmallKernelsWantsLargerOnes) {
  EXPECT_EQ(ids(advice(card(95, 3, 8))), Ids{"small-work"});
}

TEST(Advice, ACardThatWorksOrOfWhichNothingIsKnownGetsNone) {
  EXPECT_TRUE(advice(card(95, 20, 60)).empty());
  EXPECT_TRUE(advice(card(60, 20, 60)).empty());
  EXPECT_TRUE(advice({}).empty());
}

}  // namespace
}  // namespace fullwatt::tune
