#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::base {
namespace {

using Views = std::vector<std::string_view>;

TEST(TrimTest, WhiteSpaceAtBothEndsGoesAndStaysInside) {
  EXPECT_EQ(trim(" \t a b \r\n"), "a b");
  EXPECT_EQ(trim("\n\v\f "), "");
  EXPECT_EQ(trim(""), "");
}

TEST(SplitTest, EveryPartIsKeptEvenAnEmptyOne) {
  EXPECT_EQ(split("a::b:", ':'), (Views{"a", "", "b", ""}));
  EXPECT_EQ(split("", ':'), Views{""});
}

TEST(LinesTest, LineEndsOfUnixAndWindowsAreTakenOff) {
  EXPECT_EQ(lines("a\r\nb\n\nc"), (Views{"a", "b", "", "c"}));
  EXPECT_EQ(lines("a\n"), Views{"a"});
  EXPECT_TRUE(lines("").empty());
}

TEST(LowerTest, OnlyAsciiLettersChange) {
  EXPECT_EQ(lower("NVRM: Xid 79"), "nvrm: xid 79");
  EXPECT_EQ(lower("Ä中"), "Ä中");
}

TEST(ShellTest, WordsAreQuotedWhereTheyWouldMeanSomethingElse) {
  EXPECT_EQ(shell_line({"python", "/data/träin.py", "--lr=1e-3", "a,b:c@d%e+f"}),
            "python /data/träin.py --lr=1e-3 a,b:c@d%e+f");
  for (const std::string word : {"my file.py", "~", "$HOME", "a;b", "*", "a\nb", ""})
    EXPECT_EQ(shell_word(word), "'" + word + "'");
  EXPECT_EQ(shell_word("it's"), R"('it'\''s')");
}

TEST(JoinTest, SeparatorStandsBetweenAndNowhereElse) {
  EXPECT_EQ(join({"a", "b", "c"}, ", "), "a, b, c");
  EXPECT_EQ(join({"a"}, ", "), "a");
  EXPECT_EQ(join({}, ", "), "");
}

TEST(PathTest, NameAndFolderAreTheTwoSidesOfTheLastSlash) {
  EXPECT_EQ(file_name("/usr/lib/libcuda.so.1"), "libcuda.so.1");
  EXPECT_EQ(file_name("libcuda.so.1"), "libcuda.so.1");
  EXPECT_EQ(folder_of("/usr/lib/libcuda.so.1"), "/usr/lib");
  EXPECT_EQ(folder_of("/vmlinuz"), "/");
  EXPECT_EQ(folder_of("name"), "");
}

TEST(PrintableTest, OrdinaryTextInAnyScriptIsLeftAlone) {
  EXPECT_EQ(printable("NVIDIA H200, 显存 141 GB, 80 °C"), "NVIDIA H200, 显存 141 GB, 80 °C");
}

TEST(PrintableTest, LineEndsAndTabsBecomeBlanks) {
  EXPECT_EQ(printable("a\tb\nc\rd"), "a b c d");
}

TEST(PrintableTest, EscapeSequencesCannotReachTheTerminal) {
  EXPECT_EQ(printable("\x1b[31mred\x1b[0m\a"), "\uFFFD[31mred\uFFFD[0m\uFFFD");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\uFFFDb");
  EXPECT_EQ(printable("\x7f"), "\uFFFD");
}

TEST(PrintableTest, ControlsHiddenInUtf8AreReplaced) {
  EXPECT_EQ(printable("\u009b31m"), "\uFFFD31m");            // a one-character escape sequence
  EXPECT_EQ(printable("a\u202Egnp.exe"), "a\uFFFDgnp.exe");  // turns the reading direction
  EXPECT_EQ(printable("x\u200By"), "x\uFFFDy");              // takes no room
  EXPECT_EQ(printable("\uFEFFx"), "\uFFFDx");
  EXPECT_EQ(printable("\uFFFF\uFDD0"), "\uFFFD\uFFFD");
}

TEST(PrintableTest, BrokenUtf8IsReplacedByteByByte) {
  EXPECT_EQ(printable("\xff\xfe"), "\uFFFD\uFFFD");
  EXPECT_EQ(printable("\xc0\xaf"), "\uFFFD\uFFFD");                      // overlong slash
  EXPECT_EQ(printable("\xe0\x80\xaf"), "\uFFFD\uFFFD\uFFFD");            // overlong in three bytes
  EXPECT_EQ(printable("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");            // half of a surrogate pair
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // above the last code point
  EXPECT_EQ(printable("\xe4\xb8"), "\uFFFD\uFFFD");                      // cut in the middle
}

TEST(PrintableTest, CutIsMarkedAndNeverSplitsACharacter) {
  EXPECT_EQ(printable("中文字", 2), "中文…");
  EXPECT_EQ(printable("中文字", 3), "中文字");
  EXPECT_EQ(printable("abc", 0), "…");
}

TEST(NearestTest, AFewWrongLettersAreForgiven) {
  const Views words{"run", "tune", "explain", "train"};
  EXPECT_EQ(nearest("explian", words), "explain");
  EXPECT_EQ(nearest("exlain", words), "explain");
  EXPECT_EQ(nearest("trainn", words), "train");
  EXPECT_EQ(nearest("tuen", words), "tune") << "letters that changed places count once";
  EXPECT_EQ(nearest("rnu", words), "run");
}

TEST(NearestTest, AWordWithoutALetterInItsPlaceIsNotNear) {
  EXPECT_EQ(nearest("cd", {"run"}), "");
  EXPECT_EQ(nearest("cat", {"run"}), "");
  EXPECT_EQ(nearest("notebook", {"run", "tune"}), "");
  EXPECT_EQ(nearest("", {"run"}), "");
  EXPECT_EQ(nearest("run", {}), "");
}

TEST(NumberTest, TheWholeTextMustBeTheNumber) {
  EXPECT_EQ(number<int>(" 42\n"), 42);
  EXPECT_EQ(number<int>("-7"), -7);
  EXPECT_EQ(number<int>("42x"), std::nullopt);
  EXPECT_EQ(number<int>("4 2"), std::nullopt);
  EXPECT_EQ(number<int>("1.5"), std::nullopt);
  EXPECT_EQ(number<int>(""), std::nullopt);
  EXPECT_EQ(number<int>("   "), std::nullopt);
}

TEST(NumberTest, HexadecimalMayCarryItsPrefix) {
  EXPECT_EQ(number<int>("0x10de", 16), 0x10de);
  EXPECT_EQ(number<int>("10DE", 16), 0x10de);
  EXPECT_EQ(number<int>("0x", 16), std::nullopt);
  EXPECT_EQ(number<int>("0x10"), std::nullopt);
}

TEST(NumberTest, WhatDoesNotFitIsNoNumber) {
  EXPECT_EQ(number<int>("2147483647"), std::numeric_limits<int>::max());
  EXPECT_EQ(number<int>("2147483648"), std::nullopt);
  EXPECT_EQ(number<unsigned>("-1"), std::nullopt);
  EXPECT_EQ(number<std::uint64_t>("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(number<std::uint64_t>("18446744073709551616"), std::nullopt);
}

TEST(NumberListTest, RangesAndSingleNumbersMix) {
  EXPECT_EQ(number_list("0-3,8,10-11\n"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(number_list(""), std::vector<int>{});
}

TEST(NumberListTest, BrokenPartsAreLeftOut) {
  EXPECT_EQ(number_list("x,2,3-,-4,5-x,7"), (std::vector<int>{2, 7}));
  EXPECT_EQ(number_list("9-3"), std::vector<int>{});
}

TEST(NumberListTest, AHugeRangeIsBounded) {
  EXPECT_EQ(number_list("0-2147483647", 4), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(number_list("0-1,5-9", 3), (std::vector<int>{0, 1, 5}));
}

TEST(NumberListTest, TheLargestNumberStandsForItself) {
  EXPECT_EQ(number_list("2147483647"), std::vector<int>{std::numeric_limits<int>::max()});
  EXPECT_EQ(number_list("2147483646-2147483647"),
            (std::vector<int>{std::numeric_limits<int>::max() - 1, std::numeric_limits<int>::max()}));
}

TEST(NumberRangesTest, NeighboursAreJoined) {
  EXPECT_EQ(number_ranges({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(number_ranges({}), "");
  EXPECT_EQ(number_ranges({std::numeric_limits<int>::max(), 1}), "2147483647,1");
}

TEST(NumberRangesTest, ReadingItBackGivesTheSameNumbers) {
  const std::vector<int> numbers{0, 2, 3, 4, 9, 127, 128};
  EXPECT_EQ(number_list(number_ranges(numbers)), numbers);
}

}  // namespace
}  // namespace fullwatt::base
