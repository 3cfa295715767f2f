#include <gtest/gtest.h>

#include "fullwatt/base/version.hpp"

namespace fullwatt::base {
namespace {

TEST(VersionTest, PartsAreNumbersNotText) {
  EXPECT_LT(Version("580.95.05"), Version("580.105.08"));
  EXPECT_LT(Version("9.1"), Version("10.0"));
  EXPECT_GT(Version("535.161.07"), Version("535.161"));
}

TEST(VersionTest, MissingPartsAreZero) {
  EXPECT_EQ(Version("13"), Version("13.0"));
  EXPECT_EQ(Version("13.0.0"), Version("13"));
  EXPECT_EQ(Version("2.11").part(7), 0);
}

TEST(VersionTest, LeadingZerosDoNotCount) {
  EXPECT_EQ(Version("580.95.05"), Version("580.95.5"));
}

TEST(VersionTest, TextAfterTheNumbersTakesNoPart) {
  EXPECT_EQ(Version("2.11.0+cu130"), Version("2.11.0"));
  EXPECT_EQ(Version("2.12.0rc1"), Version("2.12.0"));
  EXPECT_EQ(Version("v1.4\n"), Version("1.4"));
  EXPECT_EQ(Version("2.11.0+cu130").minor(), 11);
}

TEST(VersionTest, AnUnknownVersionIsBelowEveryKnownOne) {
  EXPECT_FALSE(Version().known());
  EXPECT_FALSE(Version("").known());
  EXPECT_FALSE(Version("unknown").known());
  EXPECT_LT(Version(), Version("0"));
  EXPECT_EQ(Version(), Version("x"));
}

TEST(VersionTest, ANumberTooLargeEndsTheVersion) {
  EXPECT_FALSE(Version("99999999999999999999").known());
  EXPECT_EQ(Version("1.99999999999999999999"), Version("1"));
  EXPECT_EQ(Version("1..2"), Version("1"));
}

TEST(CudaVersionTextTest, ThousandsAreMajorAndTensAreMinor) {
  EXPECT_EQ(cuda_version_text(13020), "13.2");
  EXPECT_EQ(cuda_version_text(12080), "12.8");
  EXPECT_EQ(cuda_version_text(9000), "9.0");
}

TEST(LibraryVersionTest, OnlyAVersionBeyondTheAbiNumberCounts) {
  EXPECT_EQ(library_version("libcuda.so.580.159.03"), "580.159.03");
  EXPECT_EQ(library_version("libcuda.so.1"), "");
  EXPECT_EQ(library_version("libcuda.so"), "");
  EXPECT_EQ(library_version("libcudart-9335f6a2.so.12.8.90"), "12.8.90");
}

}  // namespace
}  // namespace fullwatt::base
