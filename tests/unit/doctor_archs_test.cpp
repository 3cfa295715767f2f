#include <gtest/gtest.h>

#include "fullwatt/doctor/archs.hpp"

namespace fullwatt::doctor {
namespace {

using Archs = std::vector<std::string>;

const Archs kCu130{"sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"};

TEST(ArchsTest, ABinaryRunsOnLaterMinorVersionsOfItsMajor) {
  EXPECT_TRUE(covers({"sm_86"}, "8.9"));
  EXPECT_TRUE(covers({"sm_80"}, "8.7"));
  EXPECT_TRUE(covers({"sm_120"}, "12.1"));
  EXPECT_FALSE(covers({"sm_89"}, "8.6"));
  EXPECT_FALSE(covers({"sm_80"}, "9.0"));
  EXPECT_FALSE(covers({"sm_90"}, "8.9"));
}

TEST(ArchsTest, PtxRunsOnEverythingFromItsVersionOn) {
  EXPECT_TRUE(covers({"compute_75"}, "7.5"));
  EXPECT_TRUE(covers({"compute_75"}, "12.0"));
  EXPECT_FALSE(covers({"compute_75"}, "7.0"));
}

TEST(ArchsTest, ArchitectureSpecificCodeRunsOnItsOwnOnly) {
  EXPECT_TRUE(covers({"sm_90a"}, "9.0"));
  EXPECT_FALSE(covers({"sm_100a"}, "10.3"));
  EXPECT_FALSE(covers({"compute_90a"}, "10.0"));
  EXPECT_FALSE(covers({"sm_120f"}, "12.1"));
}

TEST(ArchsTest, TheWheelOfTodayServesTuringToBlackwellAndNothingOlder) {
  for (const auto* capability : {"7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "12.0", "12.1", "13.0"}) {
    EXPECT_TRUE(covers(kCu130, capability)) << capability;
  }
  for (const auto* capability : {"5.0", "6.1", "7.0", "7.2"}) EXPECT_FALSE(covers(kCu130, capability)) << capability;
}

TEST(ArchsTest, AnUnknownGpuIsNotCondemned) {
  EXPECT_TRUE(covers(kCu130, ""));
  EXPECT_TRUE(covers({}, "unknown"));
}

TEST(ArchsTest, AnEmptyListServesNothing) {
  EXPECT_FALSE(covers({}, "9.0"));
  EXPECT_FALSE(covers({"gfx942", "nonsense", "sm_", "sm_x", "", "_", "a"}, "9.0"));
}

TEST(ArchsTest, LowestAndHighestAreNumbersNotText) {
  EXPECT_EQ(lowest_arch(kCu130), "7.5");
  EXPECT_EQ(highest_arch(kCu130), "12.0");
  EXPECT_EQ(lowest_arch({}), "");
  EXPECT_EQ(highest_arch({"rubbish"}), "");
}

}  // namespace
}  // namespace fullwatt::doctor
