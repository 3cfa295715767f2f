#include "fullwatt/vendor/cuda/cuda.hpp"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/time.h>
#include <unistd.h>

#include "fullwatt/base/library.hpp"
#include "fullwatt/model/json.hpp"

namespace fullwatt::vendor::cuda {
namespace {

constexpr const char* kFake = FULLWATT_FAKE_CUDA_LIBRARY;

/// An environment variable for the time of one test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

model::CudaDevice healthy_device(int ordinal) {
  model::CudaDevice device;
  device.ordinal = ordinal;
  device.name = "NVIDIA H200";
  device.uuid = "GPU-0123abcd-4567-89ab-cdef-00000000000" + std::to_string(ordinal);
  device.bdf = "0000:c" + std::to_string(ordinal) + ":00.0";
  device.compute_capability = "9.0";
  device.memory_total_bytes = 150'754'820'096;
  device.multiprocessors = 132;
  device.context = 0;
  device.launch = 0;
  return device;
}

model::CudaAnswers healthy(int devices) {
  model::CudaAnswers answers;
  answers.library = std::filesystem::canonical(kFake).string();
  answers.init = 0;
  answers.driver_version = 13000;
  for (int i = 0; i < devices; ++i) answers.devices.push_back(healthy_device(i));
  return answers;
}

class CudaTest : public testing::Test {
 protected:
  void SetUp() override { ::unsetenv("CUDA_VISIBLE_DEVICES"); }
  void TearDown() override { std::filesystem::remove(file_); }

  /// Has the fake answer `answers`, and reads it.
  model::CudaAnswers read_from_fake(const model::CudaAnswers& answers) {
    prepare(answers);
    return read(kFake);
  }
  void prepare(const model::CudaAnswers& answers) { std::ofstream(file_) << model::dump(model::to_json(answers)); }

  /// Contexts, modules and buffers that the last reading did not give back.
  int left_behind() const { return library_->find<int()>("fullwatt_fake_cuda_live")(); }

 private:
  std::string file_ = testing::TempDir() + "fake_cuda_" + std::to_string(::getpid()) + ".json";
  Variable variable_{"FULLWATT_FAKE_CUDA", file_};
  base::Result<base::Library> library_ = base::Library::load(kFake);  // stays loaded, so that its counter does
};

/// As JSON text, without the times, which are measured and never answered.
std::string comparable(model::CudaAnswers answers) {
  for (auto& device : answers.devices) device.launch_ms = {};
  return model::dump(model::to_json(answers), 2);
}

TEST_F(CudaTest, TwoDevicesAreReadAsTheDriverTellsThem) {
  auto wanted = healthy(2);
  wanted.devices[0].peers = {1};
  wanted.devices[1].peers = {0};
  wanted.devices[1].name = "NVIDIA GB10";
  wanted.devices[1].compute_capability = "12.1";
  wanted.devices[1].integrated = true;
  wanted.devices[1].watchdog = true;

  const auto got = read_from_fake(wanted);

  EXPECT_EQ(comparable(got), comparable(wanted));
  for (const auto& device : got.devices) {
    EXPECT_TRUE(device.launch_ms && *device.launch_ms > 0 && *device.launch_ms < 10'000);
  }
  EXPECT_EQ(left_behind(), 0);
}

TEST_F(CudaTest, AFailedInitKeepsItsCodeAndStillTellsTheVersion) {
  for (const int code : {34, 100, 802, 803, 999}) {
    auto wanted = healthy(0);
    wanted.init = code;
    EXPECT_EQ(comparable(read_from_fake(wanted)), comparable(wanted)) << "cuInit = " << code;
  }
}

TEST_F(CudaTest, AVersionThatFailsIsAbsentWithItsCode) {
  auto answers = healthy(0);
  answers.init = 34;
  answers.driver_version = base::absent(base::Absent::failed, {}, 34);
  const auto got = read_from_fake(answers);
  ASSERT_FALSE(got.driver_version);
  EXPECT_EQ(got.driver_version.error().reason, base::Absent::failed);
  EXPECT_EQ(got.driver_version.error().code, 34);
}

TEST_F(CudaTest, WithoutAContextNoKernelIsTried) {
  auto wanted = healthy(2);
  wanted.devices[0].context = model::cuda_code::kDeviceUnavailable;
  wanted.devices[0].launch = {};
  EXPECT_EQ(comparable(read_from_fake(wanted)), comparable(wanted));
  EXPECT_EQ(left_behind(), 0);
}

TEST_F(CudaTest, AFailedLaunchKeepsItsCodeAndLeavesNothingBehind) {
  constexpr int kLaunchFailed = 719;  // comes from running, the others from loading
  for (const int code : {209, 222, kLaunchFailed}) {
    auto wanted = healthy(1);
    wanted.devices[0].launch = code;
    const auto got = read_from_fake(wanted);
    EXPECT_EQ(comparable(got), comparable(wanted)) << "launch = " << code;
    EXPECT_FALSE(got.devices.at(0).launch_ms);
    EXPECT_EQ(left_behind(), 0) << "launch = " << code;
  }
}

TEST_F(CudaTest, AWrongResultIsAFailureWithoutAnInventedCode) {
  const Variable wrong("FULLWATT_FAKE_CUDA_WRONG_RESULT", "1");
  const auto got = read_from_fake(healthy(1));
  const auto& launch = got.devices.at(0).launch;
  ASSERT_FALSE(launch);
  EXPECT_EQ(launch.error(), base::absent(base::Absent::failed, "the kernel ran but its result is wrong"));
  EXPECT_FALSE(got.devices.at(0).launch_ms);
  EXPECT_EQ(left_behind(), 0);
}

TEST_F(CudaTest, AWrongResultReadOnceIsReadAgainFromItsRecord) {
  auto wanted = healthy(2);
  wanted.devices[1].launch = base::absent(base::Absent::failed, "the kernel ran but its result is wrong");
  EXPECT_EQ(comparable(read_from_fake(wanted)), comparable(wanted));
}

TEST_F(CudaTest, BeyondTheLimitDevicesAreReadButNotLaunchedOn) {
  auto wanted = healthy(kLaunchLimit + 1);
  for (auto& device : wanted.devices) device.uuid = "GPU-0123abcd-4567-89ab-cdef-000000000000";
  wanted.devices.back().context = {};
  wanted.devices.back().launch = {};
  EXPECT_EQ(comparable(read_from_fake(wanted)), comparable(wanted));
}

TEST_F(CudaTest, AUuidIsAMigSliceOnlyWhereOneWasAskedFor) {
  auto wanted = healthy(1);
  wanted.devices[0].uuid = "MIG-0123abcd-4567-89ab-cdef-000000000000";
  const Variable visible("CUDA_VISIBLE_DEVICES", wanted.devices[0].uuid);
  EXPECT_EQ(comparable(read_from_fake(wanted)), comparable(wanted));

  const Variable whole("CUDA_VISIBLE_DEVICES", "GPU-0123abcd");
  EXPECT_EQ(read_from_fake(wanted).devices.at(0).uuid, "GPU-0123abcd-4567-89ab-cdef-000000000000");
}

TEST_F(CudaTest, WhatTheDriverDoesNotTellStaysEmpty) {
  model::CudaAnswers wanted = healthy(1);
  wanted.devices[0].name = "";
  wanted.devices[0].uuid = "";
  wanted.devices[0].bdf = "";
  wanted.devices[0].compute_capability = "";
  EXPECT_EQ(comparable(read_from_fake(wanted)), comparable(wanted));
}

TEST_F(CudaTest, AMissingLibraryIsNotThereWithTheLoadersWords) {
  const auto got = read("libcuda-that-nobody-has.so.1");
  ASSERT_FALSE(got.library);
  ASSERT_FALSE(got.init);
  EXPECT_EQ(got.library.error().reason, base::Absent::not_there);
  EXPECT_EQ(got.init.error().reason, base::Absent::not_there);
  EXPECT_NE(got.init.error().detail.find("libcuda-that-nobody-has.so.1"), std::string::npos);
  EXPECT_TRUE(got.devices.empty());
}

TEST_F(CudaTest, AnotherLibraryUnderTheNameIsUnsupported) {
  const auto got = read("libz.so.1");
  ASSERT_FALSE(got.library);
  ASSERT_FALSE(got.init);
  ASSERT_FALSE(got.driver_version);
  EXPECT_EQ(got.library.error(), base::absent(base::Absent::unsupported, "libz.so.1 has no cuInit"));
  EXPECT_EQ(got.init.error(), base::absent(base::Absent::unsupported, "the library has no cuInit"));
  EXPECT_EQ(got.driver_version.error().reason, base::Absent::unsupported);
  EXPECT_TRUE(got.devices.empty());
}

using CudaDeathTest = CudaTest;

TEST_F(CudaDeathTest, ACrashingDriverTakesItsProcessAlong) {
  prepare(healthy(1));
  const Variable crash("FULLWATT_FAKE_CUDA_CRASH", "1");
  EXPECT_EXIT(read(kFake), testing::KilledBySignal(SIGABRT), "");
}

TEST_F(CudaDeathTest, AHangingDriverNeverAnswers) {
  prepare(healthy(1));
  const Variable hang("FULLWATT_FAKE_CUDA_HANG", "1");
  const auto read_for_a_while = [] {
    const itimerval alarm{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 100'000}};
    ::setitimer(ITIMER_REAL, &alarm, nullptr);
    read(kFake);
  };
  EXPECT_EXIT(read_for_a_while(), testing::KilledBySignal(SIGALRM), "");
}

}  // namespace
}  // namespace fullwatt::vendor::cuda
