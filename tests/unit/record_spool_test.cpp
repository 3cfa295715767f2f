// What the recorder writes is what the reader gives back, whatever happened in between.

#include <algorithm>
#include <filesystem>
#include <memory>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fullwatt/record/recorder/step_counter.hpp"
#include "fullwatt/record/spool_reader.hpp"
#include "fullwatt/record/spool_writer.hpp"

namespace fullwatt::record {
namespace {

using tests::TempFolder;

std::unique_ptr<SpoolWriter> open_spool(const std::string& path, std::uint64_t bytes = kMainSpoolBytes) {
  auto writer = SpoolWriter::create(path, Role::trainer, 3, bytes);
  EXPECT_TRUE(writer) << writer.error().message;
  return std::unique_ptr<SpoolWriter>(*writer);
}

Record kernel(std::uint32_t name, std::uint64_t start, std::uint64_t length) {
  Record record{};
  record.kind = Kind::kernel;
  record.id = name;
  record.start_ns = start;
  record.duration_ns = length;
  record.a = 7;
  record.b = 13;
  return record;
}

TEST(SpoolTest, WhatWasWrittenIsRead) {
  const TempFolder folder;
  {
    const auto spool = open_spool(folder / "spool");
    const auto name = spool->text("gemm");
    EXPECT_EQ(spool->text("gemm"), name);
    EXPECT_NE(spool->text(std::string(100, 'x')), name);
    spool->append(kernel(name, 200, 10));
    spool->append(kernel(name, 100, 50));
    spool->say(Kind::trouble, "no seat");
  }
  const auto process = read_spool(folder / "spool");
  ASSERT_TRUE(process) << process.error().message;
  EXPECT_EQ(process->rank, 3);
  EXPECT_EQ(process->pid, ::getpid());
  ASSERT_EQ(process->activities.size(), 2U);
  EXPECT_EQ(process->activities[0].start_ns, 100U);
  EXPECT_EQ(process->activities[0].end_ns, 150U);
  EXPECT_EQ(process->text(process->activities[0].name), "gemm");
  EXPECT_EQ(process->activities[0].stream, 13U);
  ASSERT_EQ(process->troubles.size(), 1U);
  EXPECT_EQ(process->troubles[0].text, "no seat");
}

TEST(SpoolTest, StacksBecomeFrames) {
  const TempFolder folder;
  const auto spool = open_spool(folder / "spool");
  Record sample{};
  sample.kind = Kind::sample;
  sample.id = spool->text("/a:b/train.py:12:step\n/a:b/main.py:3:<module>");
  spool->append(sample);
  const auto process = read_spool(folder / "spool");
  ASSERT_TRUE(process);
  ASSERT_EQ(process->stacks.size(), 1U);
  EXPECT_EQ(process->stacks[0][0], (model::Site{"/a:b/train.py", 12, "step"}));
  EXPECT_EQ(process->stacks[0][1].line, 3);
}

TEST(SpoolTest, AFullSpoolDropsAndCounts) {
  const TempFolder folder;
  const auto spool = open_spool(
      folder / "spool", kHeaderBytes + kTrendBuckets * sizeof(Trend) + kStepRing * sizeof(Step) + 10 * sizeof(Record));
  for (int i = 0; i < 12; ++i) spool->append(kernel(0, 1, 1));
  EXPECT_EQ(spool->text("no room"), 0U);
  const auto process = read_spool(folder / "spool");
  ASSERT_TRUE(process);
  EXPECT_EQ(process->activities.size(), 10U);
  EXPECT_EQ(process->records_dropped, 3U);
}

TEST(SpoolTest, AProcessThatWasKilledLeavesAReadableSpool) {
  const TempFolder folder;
  const auto path = folder / "spool";
  const int child = ::fork();
  if (child == 0) {
    auto* spool = SpoolWriter::create(path, Role::trainer, 0, kMainSpoolBytes).value_or(nullptr);
    StepCounter steps;
    for (std::uint64_t i = 1; spool != nullptr; ++i) {
      spool->append(kernel(spool->text("kernel " + std::to_string(i % 100)), i, 1));
      steps.finish(*spool, 0, i);
      if (i == 5000) ::kill(::getpid(), SIGKILL);
    }
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto process = read_spool(path);
  ASSERT_TRUE(process) << process.error().message;
  EXPECT_EQ(process->step_count, 5000U);
  EXPECT_EQ(process->activities.size(), 5000U);
  EXPECT_FALSE(process->closed);
}

TEST(SpoolTest, AnyCutGivesWhatIsLeftOrAClearWord) {
  const TempFolder folder;
  const auto path = folder / "spool";
  {
    const auto spool = open_spool(path);
    for (std::uint64_t i = 0; i < 100; ++i) spool->append(kernel(spool->text("k" + std::to_string(i)), i, 1));
  }
  const auto whole = tests::read_all(path);
  std::size_t before = 101;
  for (const auto cut : {whole.size(), *used_bytes(path), *used_bytes(path) - 1000, std::uint64_t{kHeaderBytes}}) {
    const auto process = parse_spool(std::string_view(whole).substr(0, cut));
    ASSERT_TRUE(process) << process.error().message;
    EXPECT_LE(process->activities.size(), before);
    before = process->activities.size();
  }
  EXPECT_EQ(before, 0U);
  EXPECT_FALSE(parse_spool(std::string_view(whole).substr(0, 100)));
  EXPECT_FALSE(parse_spool(std::string(kHeaderBytes, 'x')));
}

TEST(SpoolTest, AnotherVersionIsRefusedByName) {
  const TempFolder folder;
  const auto spool = open_spool(folder / "spool");
  spool->header().version = 99;
  const auto process = read_spool(folder / "spool");
  ASSERT_FALSE(process);
  EXPECT_NE(process.error().message.find("version 99"), std::string::npos);
}

TEST(SpoolTest, ADiskWithoutRoomIsToldAndNothingIsLeft) {
  const TempFolder folder;
  const auto writer = SpoolWriter::create(folder / "spool", Role::trainer, 0, 1ULL << 60U);
  ASSERT_FALSE(writer);
  EXPECT_FALSE(std::filesystem::exists(folder / "spool"));
}

TEST(StepCounterTest, PhasesAndSamplesBelongToTheStepInWhichTheyHappen) {
  const TempFolder folder;
  const auto spool = open_spool(folder / "spool");
  StepCounter steps;
  steps.phase(Phase::data, 30);
  steps.samples(64);
  steps.finish(*spool, 0, 1000);
  steps.flag(kSaved);
  steps.finish(*spool, 1, 1500);
  const auto process = read_spool(folder / "spool");
  ASSERT_EQ(process->steps.size(), 2U);
  EXPECT_EQ(process->steps[0].phase_ns[0], 30U);
  EXPECT_EQ(process->steps[0].samples, 64U);
  EXPECT_TRUE(process->steps[0].plain());
  EXPECT_EQ(process->steps[1].phase_ns[0], 0U);
  EXPECT_FALSE(process->steps[1].plain());
  EXPECT_EQ(process->steps[1].optimizer, 1);
}

TEST(StepCounterTest, TheTrendKeepsEveryStepHoweverLongTheRun) {
  const TempFolder folder;
  const auto spool = open_spool(folder / "spool");
  StepCounter steps;
  constexpr std::uint64_t kSteps = 100'000;
  for (std::uint64_t i = 1; i <= kSteps; ++i) {
    steps.samples(2);
    steps.finish(*spool, 0, i * 10);
  }
  const auto process = read_spool(folder / "spool");
  ASSERT_TRUE(process);
  EXPECT_EQ(process->steps.size(), kStepRing);
  EXPECT_EQ(process->steps.back().number, kSteps);
  std::uint64_t counted = 0;
  for (const auto& bucket : process->trend) {
    counted += bucket.steps;
    EXPECT_EQ(bucket.plain_min_ns, 10U);
    EXPECT_EQ(bucket.plain_max_ns, 10U);
  }
  EXPECT_EQ(counted, kSteps - 1);
  EXPECT_LE(process->trend.size(), kTrendBuckets);
  EXPECT_EQ(process->samples_total, 2 * kSteps);
}

TEST(ProgressTest, TheMedianOfTheNewestStepsIsTold) {
  const TempFolder folder;
  const auto spool = open_spool(folder / "spool");
  StepCounter steps;
  std::uint64_t now = 1;
  for (int i = 0; i < 200; ++i) steps.finish(*spool, 0, now += i < 100 ? 1000 : 40);
  const auto progress = read_progress(folder / "spool");
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->steps, 200U);
  EXPECT_EQ(progress->recent_step_ns, 40U);
  EXPECT_EQ(progress->last_step_ns, now);
}

}  // namespace
}  // namespace fullwatt::record
