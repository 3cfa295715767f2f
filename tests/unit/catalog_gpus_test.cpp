// Peaks of GPUs by name, and by rate where the table has none.

#include <cmath>
#include <regex>
#include <set>
#include <string>

#include "catalog/gpus.hpp"
#include <gtest/gtest.h>

namespace fullwatt::catalog {
namespace {

TEST(Gpus, TheTableHasEveryCardOfTheReference) {
  EXPECT_EQ(gpu_cards().size(), 140U);
  EXPECT_EQ(gpu_rates().size(), 21U);
}

TEST(Gpus, AnH200IsFoundByItsName) {
  const auto gpu = gpu_peaks("NVIDIA H200");
  ASSERT_TRUE(gpu);
  EXPECT_EQ(gpu->card, "H200 SXM");
  EXPECT_FALSE(gpu->estimated);
  EXPECT_DOUBLE_EQ(*gpu->peak("bf16"), 989.5);
  EXPECT_DOUBLE_EQ(*gpu->peak("tf32"), 494.5);
  EXPECT_DOUBLE_EQ(*gpu->peak("fp32"), 67.0);
  EXPECT_DOUBLE_EQ(*gpu->bandwidth_gbs, 4814);
  EXPECT_DOUBLE_EQ(*gpu->power_w, 700);
  EXPECT_FALSE(gpu->peak("fp64").has_value());
  EXPECT_FALSE(gpu->source.empty());
}

TEST(Gpus, NamesAreMatchedAsAWhole) {
  EXPECT_EQ(gpu_peaks("NVIDIA A100-SXM4-80GB")->peaks.bf16, 312);
  EXPECT_NEAR(gpu_peaks("NVIDIA A10")->peaks.bf16, 125, 1);
  EXPECT_NE(gpu_peaks("NVIDIA L40S")->peaks.bf16, gpu_peaks("NVIDIA L4")->peaks.bf16);
  EXPECT_NE(gpu_peaks("NVIDIA GeForce RTX 4090")->card, gpu_peaks("NVIDIA GeForce RTX 4090 Laptop GPU")->card);
  EXPECT_TRUE(gpu_peaks("GeForce RTX 2080 Ti").has_value()) << "drivers before 465 leave NVIDIA out";
  EXPECT_FALSE(gpu_peaks("Some NVIDIA H200 in a box").has_value());
}

TEST(Gpus, OneNameForTwoChipsIsToldApartByItsMultiprocessorsAndMemory) {
  const std::string name = "NVIDIA GeForce RTX 3080";
  EXPECT_EQ(gpu_peaks(name, {.multiprocessors = 68})->card, "GeForce RTX 3080 10GB");
  EXPECT_EQ(gpu_peaks(name, {.multiprocessors = 70})->card, "GeForce RTX 3080 12GB");
  EXPECT_EQ(gpu_peaks(name, {.memory_gb = 11.8})->card, "GeForce RTX 3080 12GB");
}

TEST(Gpus, AnUnlistedCardIsEstimatedWhenItsRateIsKnown) {
  const GpuTraits traits{.compute_capability = "8.9", .multiprocessors = 40, .boost_mhz = 2500};
  const auto geforce = gpu_peaks("NVIDIA GeForce RTX 4999", traits);
  ASSERT_TRUE(geforce);
  EXPECT_TRUE(geforce->estimated);
  EXPECT_NEAR(geforce->peaks.fp32, 25.6, 1e-6);
  EXPECT_NEAR(geforce->peaks.bf16, 51.2, 1e-6) << "half rate with fp32 accumulation";
  EXPECT_NEAR(gpu_peaks("NVIDIA L999", traits)->peaks.bf16, 102.4, 1e-6);
}

TEST(Gpus, ACardOfUnknownLimitsIsNotEstimated) {
  const GpuTraits traits{.compute_capability = "12.0", .multiprocessors = 170, .boost_mhz = 2400};
  EXPECT_FALSE(gpu_peaks("NVIDIA RTX 6000D", traits).has_value());
  EXPECT_FALSE(gpu_peaks("NVIDIA RTX A2000 Laptop GPU X", traits).has_value());
  EXPECT_FALSE(gpu_peaks("NVIDIA GeForce RTX 5999", {.compute_capability = "12.0"}).has_value());
  EXPECT_FALSE(gpu_peaks("NVIDIA X", {.compute_capability = "99.0", .multiprocessors = 1, .boost_mhz = 1}).has_value());
}

TEST(Gpus, ASliceHasItsShareOfThePeak) {
  const auto whole = gpu_peaks("NVIDIA A100-SXM4-40GB");
  const auto slice = gpu_peaks("NVIDIA A100-SXM4-40GB MIG 1g.5gb", {.multiprocessors = 14});
  ASSERT_TRUE(slice);
  EXPECT_NEAR(slice->peaks.bf16, whole->peaks.bf16 * 14 / 108, 0.1);
  EXPECT_FALSE(slice->bandwidth_gbs.has_value());
}

TEST(Gpus, TheTableAgreesWithRateTimesClockWhereThatIsHowItWasMade) {
  int checked = 0;
  for (const auto& card : gpu_cards()) {
    if (card.confidence != "computed") continue;
    for (const auto& rate : gpu_rates()) {
      if (rate.rate_class != card.rate_class) continue;
      const double computed = rate.flop.fp32 * card.multiprocessors * card.boost_mhz / 1e6;
      EXPECT_NEAR(card.peaks.fp32, computed, 0.03 * computed) << card.card;
      ++checked;
    }
  }
  EXPECT_GT(checked, 60);
}

TEST(Gpus, EveryRowIsSound) {
  for (const auto& card : gpu_cards()) {
    EXPECT_NO_THROW(std::regex(card.pattern.begin(), card.pattern.end())) << card.card;
    EXPECT_GT(card.peaks.fp32, 0) << card.card;
    EXPECT_GT(card.bandwidth_gbs, 0) << card.card;
    EXPECT_GT(card.power_w, 0) << card.card;
    EXPECT_FALSE(card.sources.empty()) << card.card;
  }
}

TEST(Gpus, APcieLinkCarriesWhatItsGenerationAndLanesGive) {
  EXPECT_NEAR(pcie_gbs(4, 16), 31.5, 0.1);
  EXPECT_NEAR(pcie_gbs(5, 16), 63.0, 0.1);
  EXPECT_NEAR(pcie_gbs(3, 4), 3.94, 0.01);
  EXPECT_EQ(pcie_gbs(0, 16), 0);
  EXPECT_EQ(pcie_gbs(9, 16), 0);
}

}  // namespace
}  // namespace fullwatt::catalog
