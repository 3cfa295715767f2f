#include <string>

#include <gtest/gtest.h>

#include "fullwatt/base/pattern.hpp"

namespace fullwatt::base {
namespace {

TEST(PatternTest, LiteralTextIsFoundAnywhereInTheLine) {
  EXPECT_TRUE(match("fallen off the bus", "NVRM: GPU has fallen off the bus."));
  EXPECT_FALSE(match("fallen off the bus", "NVRM: GPU is fine"));
  EXPECT_FALSE(match("Xid", "xid"));
}

TEST(PatternTest, StarSkipsAnyRunOfCharacters) {
  EXPECT_TRUE(match("BAR* is 0M", "NVRM: BAR1 is 0M @ 0x0"));
  EXPECT_TRUE(match("BAR*is", "BARis"));
  EXPECT_FALSE(match("BAR*is 0M", "is 0M BAR"));
}

TEST(PatternTest, ANameCapturesAsLittleAsPossible) {
  const auto captures = match("Xid (PCI:{bdf}): {xid},", "NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=x): 5,");
  ASSERT_TRUE(captures);
  EXPECT_EQ(*captures, (Captures{{"bdf", "0000:01:00"}, {"xid", "79"}}));
}

TEST(PatternTest, ANameAtTheEndTakesTheNextWord) {
  EXPECT_EQ(match("driver {version}", "driver 580.95.05, release"), (Captures{{"version", "580.95.05"}}));
  EXPECT_EQ(match("driver {version}", "driver 580.95.05 release"), (Captures{{"version", "580.95.05"}}));
  EXPECT_EQ(match("driver {version}", "driver "), (Captures{{"version", ""}}));
}

TEST(PatternTest, ASecondPlaceOfTheFirstWordDoesNotHideTheMatch) {
  EXPECT_EQ(match("a{x}c", "ab ab abc"), (Captures{{"x", "b ab ab"}}));
}

TEST(PatternTest, TheSameNameTwiceKeepsTheFirst) {
  EXPECT_EQ(match("{x}-{x}-", "1-2-"), (Captures{{"x", "1"}}));
}

TEST(PatternTest, AnUnclosedBraceIsText) {
  EXPECT_TRUE(match("a{b", "xa{bx"));
  EXPECT_FALSE(match("a{b", "ab"));
}

TEST(PatternTest, AnEmptyPatternFitsEveryLine) {
  EXPECT_TRUE(match("", ""));
  EXPECT_TRUE(match("", "anything"));
  EXPECT_TRUE(match("*", ""));
}

TEST(PatternTest, AMillionCharactersNeitherHangNorOverflow) {
  const std::string line(1'000'000, 'a');
  EXPECT_FALSE(match("a*a*a*a*a*b", line));
  EXPECT_FALSE(match("{x}aab", line));
  EXPECT_TRUE(match("a*a*a", line));
}

}  // namespace
}  // namespace fullwatt::base
