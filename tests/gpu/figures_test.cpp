// Our figures against the driver's own, on a real GPU.

#include <cmath>

#include <gtest/gtest.h>

#include "fullwatt/base/process.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/vendor/cuda/cuda.hpp"
#include "fullwatt/vendor/nvml/nvml.hpp"

namespace fullwatt {
namespace {

/// One line per GPU from nvidia-smi, split at commas; empty where there is none.
std::vector<std::vector<std::string>> ask_smi(const std::string& fields) {
  base::ChildOptions options;
  options.argv = {"nvidia-smi", "--query-gpu=" + fields, "--format=csv,noheader,nounits"};
  options.environment = base::current_environment();
  options.limit = std::chrono::seconds(60);
  const auto result = base::run_child(options);
  std::vector<std::vector<std::string>> rows;
  if (!result || !result->ok()) return rows;
  for (auto line : base::lines(result->out)) {
    auto& row = rows.emplace_back();
    for (auto cell : base::split(line, ',')) row.emplace_back(base::trim(cell));
  }
  return rows;
}

class OnTheGpu : public testing::Test {
 protected:
  void SetUp() override {
    nvml_ = vendor::nvml::read();
    if (!nvml_.works() || nvml_.devices.empty()) GTEST_SKIP() << "skipped: no GPU";
  }
  model::Nvml nvml_;
};

constexpr double kMiB = 1024.0 * 1024;

TEST_F(OnTheGpu, FixedFiguresEqualTheDriversOwn) {
  const auto rows = ask_smi(
      "name,uuid,driver_version,compute_cap,memory.total,power.default_limit,power.max_limit,clocks.max.sm,clocks.max."
      "mem");
  ASSERT_EQ(rows.size(), nvml_.devices.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& device = nvml_.devices[i];
    ASSERT_EQ(rows[i].size(), 9U);
    EXPECT_EQ(device.name.value_or(""), rows[i][0]);
    EXPECT_EQ(device.uuid.value_or(""), rows[i][1]);
    EXPECT_EQ(nvml_.driver_version.value_or(""), rows[i][2]);
    EXPECT_EQ(device.compute_capability.value_or(""), rows[i][3]);
    EXPECT_EQ(std::floor(static_cast<double>(device.memory_total_bytes.value_or(0)) / kMiB), std::stod(rows[i][4]));
    EXPECT_NEAR(device.power_default_mw.value_or(0) / 1000.0, std::stod(rows[i][5]), 0.01);
    EXPECT_NEAR(device.power_max_mw.value_or(0) / 1000.0, std::stod(rows[i][6]), 0.01);
    EXPECT_EQ(device.max_clock_sm_mhz.value_or(0), std::stoi(rows[i][7]));
    EXPECT_EQ(device.max_clock_memory_mhz.value_or(0), std::stoi(rows[i][8]));
  }
}

TEST_F(OnTheGpu, SettingsEqualTheDriversOwn) {
  const auto rows = ask_smi(
      "power.limit,enforced.power.limit,persistence_mode,compute_mode,ecc.mode.current,mig.mode.current,pcie.link."
      "width.max,pcie.link.gen.max");
  ASSERT_EQ(rows.size(), nvml_.devices.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& device = nvml_.devices[i];
    EXPECT_NEAR(device.power_limit_mw.value_or(0) / 1000.0, std::stod(rows[i][0]), 0.01);
    EXPECT_NEAR(device.power_enforced_mw.value_or(0) / 1000.0, std::stod(rows[i][1]), 0.01);
    EXPECT_EQ(device.persistence.value_or(false), rows[i][2] == "Enabled");
    EXPECT_EQ(device.compute_mode.value_or(-1) == 0, rows[i][3] == "Default");
    if (device.ecc_enabled) {
      EXPECT_EQ(*device.ecc_enabled, rows[i][4] == "Enabled");
    }
    if (device.mig_enabled) {
      EXPECT_EQ(*device.mig_enabled, rows[i][5] == "Enabled");
    }
    if (device.pcie_max_width) {
      EXPECT_EQ(*device.pcie_max_width, std::stoi(rows[i][6]));
    }
    if (device.pcie_max_generation) {
      EXPECT_EQ(*device.pcie_max_generation, std::stoi(rows[i][7]));
    }
  }
}

/// These move while both are read, so they agree within what an idle card drifts in a moment.
TEST_F(OnTheGpu, MovingFiguresAgreeWithTheDriversOwn) {
  const auto rows = ask_smi("temperature.gpu,power.draw,memory.used,memory.free");
  ASSERT_EQ(rows.size(), nvml_.devices.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& device = nvml_.devices[i];
    EXPECT_NEAR(device.temperature_c.value_or(0), std::stod(rows[i][0]), 5);
    const auto watts = std::stod(rows[i][1]);
    EXPECT_NEAR(device.power_mw.value_or(0) / 1000.0, watts, std::max(20.0, watts * 0.3));
    EXPECT_NEAR(static_cast<double>(device.memory_used_bytes.value_or(0)) / kMiB, std::stod(rows[i][2]), 1024);
    EXPECT_NEAR(static_cast<double>(device.memory_free_bytes.value_or(0)) / kMiB, std::stod(rows[i][3]), 1024);
  }
}

TEST_F(OnTheGpu, ARealKernelRunsOnEveryDevice) {
  const auto cuda = vendor::cuda::read();
  ASSERT_TRUE(cuda.init.is(0));
  ASSERT_FALSE(cuda.devices.empty());
  for (const auto& device : cuda.devices) {
    EXPECT_TRUE(device.context.is(0));
    EXPECT_TRUE(device.launch.is(0)) << device.name;
    EXPECT_GT(device.memory_total_bytes, 0U);
  }
  EXPECT_EQ(cuda.devices.front().uuid, nvml_.devices.front().uuid.value_or(""));
  EXPECT_EQ(cuda.devices.front().bdf, nvml_.devices.front().bdf.value_or(""));
  EXPECT_EQ(cuda.driver_version.value_or(0), nvml_.cuda_version.value_or(-1));
}

}  // namespace
}  // namespace fullwatt
