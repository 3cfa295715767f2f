// Windows with CUPTI there, absent, denied or taken; nothing of it stays on afterwards.

#include <cstdlib>
#include <memory>

#include "tests/support/temp_folder.hpp"
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "fullwatt/record/recorder/capture.hpp"
#include "fullwatt/record/spool_reader.hpp"

namespace fullwatt::record {
namespace {

class CaptureTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* variable : {"FAKE_CUPTI_TAKEN", "FAKE_CUPTI_DENIED", "FAKE_CUDA_IDLE"}) ::unsetenv(variable);
    ::setenv("FULLWATT_CUPTI", FULLWATT_FAKE_CUPTI, 1);
    ASSERT_NE(::dlopen(FULLWATT_FAKE_DRIVER, RTLD_NOW), nullptr) << ::dlerror();
    auto writer = SpoolWriter::create(folder_ / "spool", Role::trainer, 0, kMainSpoolBytes);
    ASSERT_TRUE(writer);
    spool_.reset(*writer);
    capture_ = std::make_unique<Capture>(*spool_);
  }
  model::TrainingProcess recorded() { return read_spool(folder_ / "spool").value_or(model::TrainingProcess{}); }
  static int ask(const char* function) {
    void* library = ::dlopen(FULLWATT_FAKE_CUPTI, RTLD_NOW);
    return reinterpret_cast<int (*)()>(::dlsym(library, function))();
  }

  tests::TempFolder folder_;
  std::unique_ptr<SpoolWriter> spool_;
  std::unique_ptr<Capture> capture_;
};

TEST_F(CaptureTest, AWindowOfTimesHoldsKernelsAndCopies) {
  ASSERT_TRUE(capture_->open(Window::times));
  capture_->count_step();
  capture_->close();
  const auto process = recorded();
  ASSERT_EQ(process.activities.size(), 2U) << "the unfinished kernel is left out";
  EXPECT_EQ(process.text(process.activities[0].name), "fake_gemm");
  EXPECT_EQ(process.activities[0].blocks, 2U);
  EXPECT_EQ(process.activities[1].bytes, 4096U);
  EXPECT_EQ(process.activities[1].source_kind, 1);
  EXPECT_TRUE(process.calls.empty());
  ASSERT_EQ(process.windows.size(), 1U);
  EXPECT_EQ(process.windows[0].steps, 1U);
  EXPECT_GE(process.activities[0].start_ns, process.opened_ns) << "on our clock";
}

TEST_F(CaptureTest, AWindowOfCausesHoldsCallsByTheirPlainNames) {
  ASSERT_TRUE(capture_->open(Window::causes));
  capture_->phase(Phase::data, 5, 10, 0);
  capture_->close();
  const auto process = recorded();
  ASSERT_EQ(process.calls.size(), 2U);
  EXPECT_EQ(process.text(process.calls[0].name), "cuLaunchKernel");
  EXPECT_EQ(process.text(process.calls[1].name), "cudaDeviceSynchronize");
  EXPECT_EQ(process.calls[0].thread, static_cast<std::uint32_t>(::gettid()));
  EXPECT_GE(process.calls[0].end_ns, process.calls[0].start_ns);
  ASSERT_EQ(process.phases.size(), 1U);
  EXPECT_EQ(process.windows[0].mode, model::RecordedWindow::Mode::causes);
}

TEST_F(CaptureTest, AfterAWindowNothingIsLeftOnAndTheNextOneWorks) {
  const auto before = ask("fake_cupti_finalized");
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(capture_->open(i % 2 == 0 ? Window::causes : Window::times));
    capture_->close();
    EXPECT_EQ(ask("fake_cupti_finalized"), before + i);
    EXPECT_EQ(ask("fake_cupti_kinds_on"), 0);
  }
  EXPECT_EQ(recorded().windows.size(), 3U);
}

struct Obstacle {
  const char* variable;
  const char* value;
  const char* says;
};

TEST_F(CaptureTest, WithoutCuptiTheWindowIsOpenAndTheReasonIsTold) {
  for (const auto& [variable, value, says] :
       {Obstacle{"FAKE_CUPTI_TAKEN", "1", "another tool"}, Obstacle{"FAKE_CUPTI_DENIED", "1", "PRIVILEGES"},
        Obstacle{"FULLWATT_CUPTI", "/not/there.so", "not found"}}) {
    std::filesystem::remove(folder_ / "spool");
    SetUp();
    ::setenv(variable, value, 1);
    const auto opened = capture_->open(Window::causes);
    ASSERT_FALSE(opened) << variable;
    EXPECT_NE(opened.error().message.find(says), std::string::npos) << opened.error().message;
    EXPECT_TRUE(capture_->is_open());
    capture_->phase(Phase::backward, 1, 2, 0);
    capture_->close();
    const auto process = recorded();
    EXPECT_EQ(process.phases.size(), 1U);
    ASSERT_EQ(process.troubles.size(), 1U);
    EXPECT_EQ(process.troubles[0].text, opened.error().message);
    EXPECT_EQ(ask("fake_cupti_kinds_on"), 0);
  }
}

TEST_F(CaptureTest, WithoutCudaThereIsNothingToMiss) {
  ::setenv("FAKE_CUDA_IDLE", "1", 1);
  const auto opened = capture_->open(Window::causes);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("not in use"), std::string::npos);
  EXPECT_TRUE(capture_->is_open());
  capture_->close();
  EXPECT_TRUE(recorded().troubles.empty());
}

TEST_F(CaptureTest, TheUsersProfilerGetsTheSeat) {
  ASSERT_TRUE(capture_->open(Window::times));
  EXPECT_TRUE(capture_->yield(true, "torch.profiler"));
  EXPECT_FALSE(capture_->is_open());
  const auto refused = capture_->open(Window::times);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("torch.profiler"), std::string::npos);
  capture_->close();
  EXPECT_FALSE(capture_->yield(false, ""));
  EXPECT_TRUE(capture_->open(Window::times));
  capture_->close();
}

}  // namespace
}  // namespace fullwatt::record
