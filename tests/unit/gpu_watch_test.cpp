#include "fullwatt/api/gpu_watch.hpp"

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/model/json.hpp"
#include "fullwatt/model/nvml.hpp"

namespace fullwatt::api {
namespace {

using namespace std::chrono_literals;

model::NvmlDevice gpu_at(const std::string& bdf, int utilization) {
  model::NvmlDevice gpu;
  gpu.name = "NVIDIA H200";
  gpu.bdf = bdf;
  gpu.memory_total_bytes = 1000;
  gpu.memory_used_bytes = 600;
  gpu.memory_free_bytes = 400;
  gpu.utilization_gpu = utilization;
  gpu.utilization_memory = 9;
  gpu.temperature_c = 41;
  gpu.power_mw = 312'450;
  return gpu;
}

/// A stand-in for the driver with two GPUs.
class GpuWatchTest : public testing::Test {
 protected:
  GpuWatchTest() {
    model::Nvml nvml;
    nvml.init = 0;
    nvml.devices = {gpu_at("0000:1b:00.0", 37), gpu_at("0000:29:00.0", 93)};
    nvml.devices.back().index = 1;
    ::setenv("FULLWATT_FAKE_NVML", folder_.write("nvml.json", model::dump(model::to_json(nvml))).c_str(), 1);
  }
  ~GpuWatchTest() override { ::unsetenv("FULLWATT_FAKE_NVML"); }

  static UtilizationMetrics watched(const std::string& address, const std::string& library) {
    const auto start = GpuWatch::Clock::now();
    const GpuWatch watch(address, library);
    watch.wait_for_first(5s);
    return watch.since(start);
  }

  const std::string fake_ = std::filesystem::canonical(FULLWATT_FAKE_NVML_LIBRARY);

 private:
  tests::TempFolder folder_;
};

TEST_F(GpuWatchTest, FiguresAreTheDriversOfTheGpuThatIsMeant) {
  const auto metrics = watched("0000:29:00.0", fake_);
  EXPECT_EQ(metrics.reason, "");
  EXPECT_EQ(metrics.gpu, "NVIDIA H200");
  EXPECT_GE(metrics.looks, 1U);
  EXPECT_EQ(metrics.gpu_percent, 93);
  EXPECT_EQ(metrics.gpu_percent_peak, 93);
  EXPECT_EQ(metrics.memory_percent, 9);
  EXPECT_EQ(metrics.power_w, 312.45);
  EXPECT_EQ(metrics.temperature_c, 41);
  EXPECT_EQ(metrics.memory_used_bytes, 600U);
  EXPECT_FALSE(metrics.sm_clock_mhz) << "the driver did not tell it";
}

TEST_F(GpuWatchTest, WithoutAnAddressItIsTheFirst) {
  EXPECT_EQ(watched("", fake_).gpu_percent, 37);
}

TEST_F(GpuWatchTest, AnUnknownGpuAndAMissingDriverAreReasons) {
  const auto unknown = watched("0000:77:00.0", fake_);
  EXPECT_EQ(unknown.reason, "NVML does not list the GPU 0000:77:00.0");
  EXPECT_FALSE(unknown.gpu_percent);
  EXPECT_EQ(watched("", "libnowhere.so").reason, "there is no NVIDIA driver here (libnowhere.so)");
}

TEST_F(GpuWatchTest, OnlyWhatWasSeenSinceThenCounts) {
  const GpuWatch watch("", fake_);
  watch.wait_for_first(5s);
  const auto later = watch.since(GpuWatch::Clock::now() + 1h);
  EXPECT_EQ(later.looks, 0U);
  EXPECT_EQ(later.reason, "the driver did not answer in this time");
}

}  // namespace
}  // namespace fullwatt::api
