#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fullwatt/engine/augment.hpp"

namespace fullwatt::engine {
namespace {

constexpr std::int64_t kSamples = 4000;
constexpr std::int64_t kHeight = 5;
constexpr std::int64_t kWidth = 7;

/// The same picture many times; no two pixels are alike.
at::Tensor pictures() {
  return at::arange(1, 2 * kHeight * kWidth + 1, at::kByte).view({1, 2, kHeight, kWidth}).repeat({kSamples, 1, 1, 1});
}

Augmentation augmentation(const AugmentConfig& config, const Normalisation& normalisation = {}) {
  at::manual_seed(1);
  return {config, normalisation, at::kCPU};
}

/// Within five deviations of what so many draws show.
void expect_share(double found, double expected, std::int64_t draws) {
  EXPECT_NEAR(found, expected, 5 * std::sqrt(expected * (1 - expected) / static_cast<double>(draws)));
}

/// How often each picture of the list is among those that were made, all of which must be in it.
std::vector<double> shares(const at::Tensor& made, const std::vector<at::Tensor>& expected) {
  std::vector<double> found;
  double sum = 0;
  for (const auto& picture : expected) {
    found.push_back(made.eq(picture).flatten(1).all(1).to(at::kDouble).mean().item<double>());
    sum += found.back();
  }
  EXPECT_DOUBLE_EQ(sum, 1) << "there are others";
  return found;
}

/// Of one picture, by torch's own padding.
at::Tensor shifted(const at::Tensor& picture, std::int64_t most, std::int64_t down, std::int64_t right, bool reflects) {
  const auto numbers = picture.to(at::kFloat).unsqueeze(0);
  const std::vector<std::int64_t> edges(4, most);
  const auto padded = reflects ? at::reflection_pad2d(numbers, edges) : at::constant_pad_nd(numbers, edges, 0);
  return padded[0].narrow(1, most + down, kHeight).narrow(2, most + right, kWidth).to(picture.scalar_type());
}

TEST(EngineAugmentTest, WithoutSettingsPicturesAndRandomNumbersStayAsTheyAre) {
  const auto nothing = augmentation({});
  const auto given = pictures();
  EXPECT_TRUE(nothing.moved(given).is_same(given));
  EXPECT_TRUE(nothing.coloured(given, true).is_same(given));
  const auto next = at::rand({4});
  at::manual_seed(1);
  EXPECT_TRUE(at::rand({4}).equal(next));
}

TEST(EngineAugmentTest, TheWantedShareIsFlipped) {
  const auto given = pictures();
  const auto made = augmentation({.flip = 0.3}).moved(given);
  EXPECT_EQ(made.scalar_type(), at::kByte);
  const auto found = shares(made, {given[0], given[0].flip({2})});
  expect_share(found[1], 0.3, kSamples);
}

TEST(EngineAugmentTest, EveryShiftIsEquallyLikelyAndNoneIsLarger) {
  const auto given = pictures();
  for (const bool reflects : {true, false}) {
    for (const std::int64_t most : {1, 2}) {
      const auto made = augmentation({.shift = most, .padding = reflects ? "reflection" : "zeros"}).moved(given);
      std::vector<at::Tensor> expected;
      for (auto down = -most; down <= most; ++down) {
        for (auto right = -most; right <= most; ++right)
          expected.push_back(shifted(given[0], most, down, right, reflects));
      }
      const auto each = 1 / static_cast<double>(expected.size());
      for (const double share : shares(made, expected)) expect_share(share, each, kSamples);
    }
  }
}

TEST(EngineAugmentTest, FlipsAndShiftsAreIndependent) {
  const auto given = pictures();
  for (const bool reflects : {true, false}) {
    const auto made =
        augmentation({.flip = 0.5, .shift = 1, .padding = reflects ? "reflection" : "zeros"}).moved(given);
    std::vector<at::Tensor> expected;
    for (const auto& picture : {given[0], given[0].flip({2})}) {
      for (std::int64_t down = -1; down <= 1; ++down) {
        for (std::int64_t right = -1; right <= 1; ++right)
          expected.push_back(shifted(picture, 1, down, right, reflects));
      }
    }
    for (const double share : shares(made, expected)) expect_share(share, 1.0 / 18, kSamples);
  }
}

/// Numbers that are spread evenly, within five deviations of the mean of so many.
void expect_even(const at::Tensor& numbers, double least, double most) {
  constexpr double kRounding = 1e-5;
  const auto count = static_cast<double>(numbers.numel());
  EXPECT_GE(numbers.min().item<double>(), least - kRounding);
  EXPECT_LE(numbers.max().item<double>(), most + kRounding);
  const double deviation = (most - least) / std::sqrt(12.0);
  EXPECT_NEAR(numbers.mean().item<double>(), (least + most) / 2, 5 * deviation / std::sqrt(count));
  EXPECT_NEAR(numbers.std().item<double>(), deviation, 5 * deviation / std::sqrt(count));
}

TEST(EngineAugmentTest, BrightnessIsAFactorOfEachPicture) {
  const auto given = pictures().to(at::kFloat) / 255;
  const auto factors = augmentation({.brightness = {0.5, 2}}).coloured(given, true).div(given).flatten(1);
  EXPECT_TRUE(factors.allclose(factors.slice(1, 0, 1)));
  expect_even(factors.select(1, 0), 0.5, 2);
}

TEST(EngineAugmentTest, ContrastIsAFactorOfTheDistanceFromTheMean) {
  const auto given = pictures().to(at::kFloat) / 255;
  const auto made = augmentation({.contrast = {0.5, 1.5}}).coloured(given, false);
  EXPECT_TRUE(made.mean({1, 2, 3}).allclose(given.mean({1, 2, 3})));
  expect_even(made.flatten(1).std(1).div(given.flatten(1).std(1)), 0.5, 1.5);
}

TEST(EngineAugmentTest, NoiseHasTheWantedDeviationAndIsDifferentInEveryPixel) {
  const auto given = at::full({kSamples, 2, kHeight, kWidth}, 0.5);
  const auto noise = augmentation({.noise = 0.1}).coloured(given, false) - given;
  const auto deviations = 5 * 0.1 / std::sqrt(static_cast<double>(noise.numel()));
  EXPECT_NEAR(noise.mean().item<double>(), 0, deviations);
  EXPECT_NEAR(noise.std().item<double>(), 0.1, deviations);
  EXPECT_GT(std::get<0>(at::_unique(noise)).numel(), noise.numel() / 2);
}

TEST(EngineAugmentTest, OnlyPicturesOfBytesStayFromZeroToOne) {
  const auto given = pictures().to(at::kFloat) / 255;
  const AugmentConfig strong{.brightness = {5, 5}, .contrast = {5, 5}, .noise = 3};
  const auto limited = augmentation(strong).coloured(given, true);
  EXPECT_EQ(limited.min().item<double>(), 0);
  EXPECT_EQ(limited.max().item<double>(), 1);
  const auto free = augmentation(strong).coloured(given, false);
  EXPECT_LT(free.min().item<double>(), 0);
  EXPECT_GT(free.max().item<double>(), 1);
}

TEST(EngineAugmentTest, EachChannelIsNormalisedByItsOwnNumbers) {
  const auto given = pictures().to(at::kFloat) / 255;
  const auto made = augmentation({}, {{0.1, 0.2}, {0.5, 2}}).coloured(given, true);
  EXPECT_TRUE(made.select(1, 0).allclose((given.select(1, 0) - 0.1) / 0.5));
  EXPECT_TRUE(made.select(1, 1).allclose((given.select(1, 1) - 0.2) / 2));
}

TEST(EngineAugmentTest, TheSameStateOfTheGeneratorMakesTheSamePictures) {
  const AugmentConfig all{.flip = 0.5, .shift = 2, .brightness = {0.8, 1.2}, .contrast = {0.8, 1.2}, .noise = 0.1};
  const auto given = pictures();
  const auto made = [&](const Augmentation& by) { return by.coloured(by.moved(given).to(at::kFloat) / 255, true); };
  const auto first = augmentation(all);
  const auto made_first = made(first);
  EXPECT_FALSE(made(first).equal(made_first));
  EXPECT_TRUE(made(augmentation(all)).equal(made_first));
}

}  // namespace
}  // namespace fullwatt::engine
