#include "fullwatt/vendor/nvml/nvml.hpp"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "fullwatt/model/json.hpp"
#include "fullwatt/vendor/nvml/monitor.hpp"

namespace {

using fullwatt::base::absent;
using fullwatt::base::Absent;
using fullwatt::base::Reading;
using fullwatt::model::dump;
using fullwatt::model::GpuProcess;
using fullwatt::model::MigSlice;
using fullwatt::model::Nvml;
using fullwatt::model::NvmlDevice;
using fullwatt::model::to_json;
using fullwatt::vendor::nvml::Monitor;
using fullwatt::vendor::nvml::read;
namespace code = fullwatt::model::nvml_code;

constexpr std::uint64_t kGib = 1024ULL * 1024 * 1024;

std::string fake() {
  return std::filesystem::canonical(FULLWATT_FAKE_NVML_LIBRARY);
}

/// The same fake with the names of an older driver only.
std::string old_fake() {
  return std::filesystem::canonical(std::filesystem::path(fake()).parent_path() / "old" / "libnvidia-ml.so.1");
}

const auto kUnsupported = absent(Absent::unsupported, {}, code::kNotSupported);

GpuProcess process(int pid, Reading<std::uint64_t> memory_bytes, const char* kind) {
  return {.pid = pid, .memory_bytes = std::move(memory_bytes), .kind = kind, .name = {}};
}

void set_power_and_clocks(NvmlDevice& gpu) {
  gpu.temperature_c = 41;
  gpu.slowdown_c = 87;
  gpu.power_mw = 312'450;
  gpu.power_limit_mw = 690'000;
  gpu.power_enforced_mw = 680'000;
  gpu.power_default_mw = 700'000;
  gpu.power_min_mw = 200'000;
  gpu.power_max_mw = 710'000;
  gpu.power_source = 2;
  gpu.clock_sm_mhz = 1755;
  gpu.clock_memory_mhz = 3201;
  gpu.max_clock_sm_mhz = 1980;
  gpu.max_clock_memory_mhz = 3202;
  gpu.performance_state = 2;
  gpu.clock_events = 0x8000'0000'0000'0024ULL;
}

void set_health(NvmlDevice& gpu) {
  gpu.ecc_enabled = true;
  gpu.ecc_uncorrected = 5'000'000'000ULL;
  gpu.remapped_rows = 3;
  gpu.remap_pending = true;
  gpu.remap_failed = false;
  gpu.retired_pages_pending = kUnsupported;
  gpu.recovery_action = 4;
}

void set_modes_and_bus(NvmlDevice& gpu) {
  gpu.compute_mode = 3;
  gpu.persistence = true;
  gpu.mig_enabled = true;
  gpu.mig_pending = false;
  gpu.mig_slices = {{"MIG-1", "NVIDIA H200 MIG 1g.18gb", 16 * kGib, 15 * kGib},
                    {"MIG-2", "NVIDIA H200 MIG 2g.35gb", kUnsupported, kUnsupported}};
  gpu.pcie_width = 8;
  gpu.pcie_max_width = 16;
  gpu.pcie_generation = 4;
  gpu.pcie_max_generation = 5;
  gpu.pcie_replays = 12;
  gpu.display_active = false;
  gpu.fabric_state = 3;
  gpu.virtualization = 1;
}

NvmlDevice data_center_gpu() {
  NvmlDevice gpu;
  gpu.name = "NVIDIA H200";
  gpu.uuid = "GPU-7c1f4d7e-0f0a-4d5e-9a55-2f1f3b0c9d11";
  gpu.bdf = "0000:1b:00.0";
  gpu.compute_capability = "9.0";
  gpu.cores = 16896;
  gpu.memory_total_bytes = 140 * kGib;
  gpu.memory_used_bytes = 20 * kGib;
  gpu.memory_free_bytes = 119 * kGib;
  gpu.memory_reserved_bytes = kGib;
  gpu.utilization_gpu = 37;
  gpu.utilization_memory = 9;
  set_power_and_clocks(gpu);
  set_health(gpu);
  set_modes_and_bus(gpu);
  gpu.processes = std::vector{process(4242, 18 * kGib, "compute"), process(4243, kGib, "compute"),
                              process(900, absent(Absent::unsupported), "graphics")};
  return gpu;
}

/// A virtual GPU: much of the rest is not offered, and each kind of absence occurs.
NvmlDevice virtual_gpu() {
  NvmlDevice gpu;
  NvmlDevice::fields(gpu, []<class T>(const char*, T& field) {
    if constexpr (requires { field.error(); }) field = kUnsupported;
  });
  gpu.index = 1;
  gpu.name = "GRID T4-16C";
  gpu.uuid = "GPU-0";
  gpu.bdf = "10000:02:1f.0";
  gpu.compute_capability = "7.5";
  gpu.memory_total_bytes = 16 * kGib;
  gpu.memory_used_bytes = 2 * kGib;
  gpu.memory_free_bytes = 14 * kGib;
  gpu.virtualization = 2;
  gpu.vgpu_licensed = false;
  gpu.persistence = absent(Absent::no_permission, {}, code::kNoPermission);
  gpu.power_mw = absent(Absent::failed, {}, code::kGpuIsLost);
  gpu.recovery_action = absent(Absent::unsupported, {}, 2);
  gpu.processes = absent(Absent::no_permission, {}, code::kNoPermission);
  return gpu;
}

Nvml machine_with(std::vector<NvmlDevice> devices) {
  return {.library = fake(), .init = 0, .driver_version = "580.65.06", .cuda_version = 13000, .devices = devices};
}

/// Hands the fake its machine and takes everything back afterwards.
class NvmlTest : public testing::Test {
 protected:
  void SetUp() override {
    file_ = testing::TempDir() + "fullwatt_nvml_" + std::to_string(::getpid()) + ".json";
    ::setenv("FULLWATT_FAKE_NVML", file_.c_str(), 1);
  }
  void TearDown() override {
    std::filesystem::remove(file_);
    for (const char* name : {"", "_HANG", "_CRASH", "_PROCESS_BYTES"}) {
      ::unsetenv((std::string("FULLWATT_FAKE_NVML") + name).c_str());
    }
  }
  void pretend(const Nvml& nvml) const { std::ofstream(file_) << dump(to_json(nvml)); }

 private:
  std::string file_;
};

void expect_same(const Nvml& answered, const Nvml& expected) {
  EXPECT_EQ(dump(to_json(answered), 1), dump(to_json(expected), 1));
}

TEST_F(NvmlTest, EveryFieldIsReadAsTheDriverAnswersIt) {
  const auto machine = machine_with({data_center_gpu(), virtual_gpu()});
  pretend(machine);
  expect_same(read(fake()), machine);
}

TEST_F(NvmlTest, PowerIsWhatTheDriverKeptSinceThen) {
  pretend(machine_with({data_center_gpu(), virtual_gpu()}));
  const auto monitor = Monitor::open(fake());
  ASSERT_TRUE(monitor);
  const auto all = (*monitor)->power_since(0, 0);
  ASSERT_GT(all.size(), 90U);
  EXPECT_DOUBLE_EQ(all.front().watts, *data_center_gpu().power_mw / 1000.0);
  const auto later = (*monitor)->power_since(0, all[all.size() - 11].at_us);
  ASSERT_GE(later.size(), 10U);
  EXPECT_EQ(later.front().at_us, all[all.size() - 10].at_us);
  EXPECT_TRUE((*monitor)->power_since(0, later.back().at_us + 60'000'000).empty());
  EXPECT_TRUE((*monitor)->power_since(1, 0).empty()) << "a card that does not tell";
}

TEST_F(NvmlTest, AMissingLibraryIsNotThere) {
  const auto nvml = read("libfullwatt-no-such-library.so.1");
  ASSERT_FALSE(nvml.library);
  EXPECT_EQ(nvml.library.error().reason, Absent::not_there);
  EXPECT_NE(nvml.library.error().detail.find("libfullwatt-no-such-library.so.1"), std::string::npos);
  ASSERT_FALSE(nvml.init);
  EXPECT_EQ(nvml.init.error().reason, Absent::not_there);
  EXPECT_FALSE(nvml.works());
}

TEST_F(NvmlTest, ALibraryWithoutNvmlsFunctionsIsUnsupported) {
  const auto nvml = read("libm.so.6");
  EXPECT_TRUE(nvml.library);
  ASSERT_FALSE(nvml.init);
  EXPECT_EQ(nvml.init.error(), absent(Absent::unsupported, "function not in this driver's NVML"));
  EXPECT_TRUE(nvml.devices.empty());
}

TEST_F(NvmlTest, AnInitErrorIsKeptAsItsCodeAndNothingElseIsAsked) {
  for (const int answer : {code::kNoPermission, code::kDriverNotLoaded, code::kVersionMismatch, 13, code::kUnknown}) {
    auto machine = machine_with({data_center_gpu()});
    machine.init = answer;
    pretend(machine);
    const auto nvml = read(fake());
    EXPECT_TRUE(nvml.init.is(answer));
    EXPECT_TRUE(nvml.library.is(fake()));
    EXPECT_FALSE(nvml.driver_version);
    EXPECT_TRUE(nvml.devices.empty());
  }
}

TEST_F(NvmlTest, ALostDeviceKeepsItsPlaceAndItsCode) {
  auto lost = data_center_gpu();
  lost.handle_code = code::kGpuIsLost;
  auto other = data_center_gpu();
  other.index = 1;
  pretend(machine_with({lost, other}));
  const auto nvml = read(fake());
  ASSERT_EQ(nvml.devices.size(), 2U);
  EXPECT_EQ(nvml.devices[0].handle_code, code::kGpuIsLost);
  EXPECT_FALSE(nvml.devices[0].bdf);
  EXPECT_EQ(nvml.devices[1].index, 1);
  EXPECT_EQ(nvml.devices[1].handle_code, 0);
  EXPECT_TRUE(nvml.devices[1].bdf.is("0000:1b:00.0"));
}

TEST_F(NvmlTest, AMachineWithoutGpusHasAnEmptyList) {
  pretend(machine_with({}));
  const auto nvml = read(fake());
  EXPECT_TRUE(nvml.works());
  EXPECT_TRUE(nvml.devices.empty());
}

TEST_F(NvmlTest, AnAbsentLibcudaShowsInTheCudaVersion) {
  auto machine = machine_with({});
  machine.cuda_version = absent(Absent::failed, {}, code::kLibraryNotFound);
  pretend(machine);
  expect_same(read(fake()), machine);
}

TEST_F(NvmlTest, AnOlderDriverIsReadThroughItsOlderNames) {
  const auto gpu = data_center_gpu();
  pretend(machine_with({gpu}));
  auto expected = machine_with({gpu});
  expected.library = old_fake();
  const auto missing = absent(Absent::unsupported, "function not in this driver's NVML");
  auto& device = expected.devices[0];
  device.memory_reserved_bytes = missing;
  device.cores = missing;
  device.power_source = missing;
  device.fabric_state = missing;
  expect_same(read(old_fake()), expected);
}

TEST_F(NvmlTest, ProcessesAreReadWhateverTheSizeOfTheDriversEntries) {
  const auto gpu = data_center_gpu();
  pretend(machine_with({gpu}));
  for (const char* bytes : {"16", "24", "32"}) {
    ::setenv("FULLWATT_FAKE_NVML_PROCESS_BYTES", bytes, 1);
    const auto nvml = read(fake());
    ASSERT_EQ(nvml.devices.size(), 1U);
    EXPECT_EQ(dump(to_json(nvml.devices[0].processes)), dump(to_json(gpu.processes))) << bytes << " bytes";
  }
}

TEST_F(NvmlTest, MoreProcessesThanExpectedAreAllRead) {
  auto gpu = data_center_gpu();
  gpu.processes->clear();
  for (int pid = 1; pid <= 500; ++pid) gpu.processes->push_back(process(pid, 1, "compute"));
  pretend(machine_with({gpu}));
  const auto nvml = read(fake());
  ASSERT_EQ(nvml.devices.size(), 1U);
  EXPECT_EQ(dump(to_json(nvml.devices[0].processes)), dump(to_json(gpu.processes)));
}

TEST_F(NvmlTest, AnUnknownPerformanceStateIsAbsent) {
  auto gpu = data_center_gpu();
  gpu.performance_state = 32;
  pretend(machine_with({gpu}));
  const auto nvml = read(fake());
  ASSERT_EQ(nvml.devices.size(), 1U);
  EXPECT_FALSE(nvml.devices[0].performance_state);
}

TEST_F(NvmlTest, ANumberThatNvmlHasNoValueForIsAbsent) {
  auto gpu = data_center_gpu();
  gpu.pcie_replays = -1;
  pretend(machine_with({gpu}));
  const auto nvml = read(fake());
  ASSERT_EQ(nvml.devices.size(), 1U);
  ASSERT_FALSE(nvml.devices[0].pcie_replays);
  EXPECT_EQ(nvml.devices[0].pcie_replays.error().reason, Absent::unsupported);
}

TEST_F(NvmlTest, ReadingTwiceAnswersTheSame) {
  pretend(machine_with({data_center_gpu()}));
  expect_same(read(fake()), read(fake()));
}

using NvmlDeathTest = NvmlTest;

TEST_F(NvmlDeathTest, TheFakeCanCrash) {
  ::setenv("FULLWATT_FAKE_NVML_CRASH", "1", 1);
  EXPECT_EXIT(read(fake()), testing::KilledBySignal(SIGABRT), "");
}

TEST_F(NvmlDeathTest, TheFakeCanHang) {
  ::setenv("FULLWATT_FAKE_NVML_HANG", "1", 1);
  const auto read_for_a_moment = [] {
    ::ualarm(50'000, 0);
    read(fake());
  };
  EXPECT_EXIT(read_for_a_moment(), testing::KilledBySignal(SIGALRM), "");
}

}  // namespace
