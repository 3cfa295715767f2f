#include <algorithm>

#include <gtest/gtest.h>

#include "fullwatt/engine/config.hpp"
#include "fullwatt/tune/starting_settings.hpp"

namespace fullwatt::tune {
namespace {

constexpr std::uint64_t kGigabyte = 1ULL << 30U;

engine::Config begun_on(std::uint64_t gigabytes, const std::string& capability, int cpus) {
  model::GpuStatus gpu;
  gpu.memory_total_bytes = gigabytes * kGigabyte;
  gpu.compute_capability = capability;
  const auto config =
      engine::parse_config("{model: {name: lstm}, data: {folder: here}}", {}, starting_settings(gpu, cpus));
  EXPECT_TRUE(config) << config.error().message;
  return config.value_or(engine::Config{});
}

TEST(StartingSettingsTest, TheEngineTakesThemForAnyCard) {
  for (const std::uint64_t gigabytes : {0, 2, 4, 6, 8, 12, 16, 24, 32, 48, 80, 141, 192}) {
    for (const std::string capability : {"", "6.1", "7.5", "8.0", "8.9", "9.0", "12.0"}) {
      const auto config = begun_on(gigabytes, capability, 16);
      EXPECT_GE(config.train.batch_size, 1);
      EXPECT_LE(config.data.device_cache_gb, static_cast<double>(gigabytes));
    }
  }
}

TEST(StartingSettingsTest, LargerCardsBeginLargerAndTensorCoresDecideThePrecision) {
  const auto small = begun_on(6, "8.9", 16);
  const auto large = begun_on(141, "9.0", 16);
  EXPECT_LT(small.train.batch_size, large.train.batch_size);
  EXPECT_LT(small.data.device_cache_gb, large.data.device_cache_gb);
  EXPECT_EQ(large.train.amp, engine::Precision::automatic);
  EXPECT_EQ(begun_on(32, "7.0", 16).train.amp, engine::Precision::fp16);
  EXPECT_EQ(begun_on(11, "6.1", 16).train.amp, engine::Precision::fp32);
  EXPECT_EQ(begun_on(141, "9.0", 2).train.num_workers, 1) << "the training itself needs a CPU, too";
}

}  // namespace
}  // namespace fullwatt::tune
