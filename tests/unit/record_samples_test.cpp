// Figures of GPUs and host, from recorded files, and their bounded store.

#include <array>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/record/host_figures.hpp"
#include "fullwatt/record/samples.hpp"

namespace fullwatt::record {
namespace {

using tests::TempFolder;

base::Tree host(const std::string& cpu, const std::string& training, const std::string& throttled) {
  base::Tree tree;
  tree["/proc/stat"].text = "cpu  " + cpu + "\ncpu0 1 1 1 1\n";
  tree["/proc/10/stat"].text = "10 (py) thon) S 1 10 10 0 -1 0 0 0 0 0 " + training + " 0 0";
  tree["/proc/10/statm"].text = "1000 500 1 1 1 1 1";
  tree["/proc/meminfo"].text = "MemTotal: 1000 kB\nMemAvailable:    2048 kB\n";
  tree["/sys/fs/cgroup/cpu.stat"].text = "usage_usec 5\nthrottled_usec " + throttled + "\n";
  tree["/proc/pressure/cpu"].text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=" + throttled + "\nfull avg10=0\n";
  tree["/proc/vmstat"].text = "pswpin 0\n";
  tree["/proc/diskstats"].text =
      " 259 0 nvme0n1 1 1 2048 1\n 259 1 nvme0n1p1 1 1 999 1\n 8 0 sda 1 1 2048 1\n 8 1 sda1 1 1 77 1\n";
  return tree;
}

TEST(HostFiguresTest, SharesAreOfTheTimeSinceTheSampleBefore) {
  base::TreeFiles first(host("100 0 100 1000 50 0 0 0", "10 10 0 0", "0"));
  HostFigures figures(first);
  figures.sample(1'000'000'000, {10});
  first = base::TreeFiles(host("190 0 200 1000 100 0 0 10", "90 50 20 10", "250000"));
  const auto sample = figures.sample(2'000'000'000, {10});
  const double ticks = 100;  // USER_HZ of every Linux that runs this
  EXPECT_DOUBLE_EQ(sample.cpus_busy, 200 / ticks);
  EXPECT_DOUBLE_EQ(sample.stolen, 10 / ticks);
  EXPECT_DOUBLE_EQ(sample.iowait, 50 / ticks);
  EXPECT_DOUBLE_EQ(sample.cpus_training, 150 / ticks) << "with what children took that are over";
  EXPECT_DOUBLE_EQ(sample.throttled, 0.25);
  EXPECT_DOUBLE_EQ(sample.cpu_pressure, 0.25);
  EXPECT_EQ(sample.memory_available_bytes, 2048U * 1024);
  EXPECT_EQ(sample.disk_read_bytes, 0U);
}

TEST(HostFiguresTest, WhatCannotBeReadIsZeroAndNoCrash) {
  base::TreeFiles nothing{base::Tree{}};
  HostFigures figures(nothing);
  figures.sample(1, {10});
  EXPECT_EQ(figures.sample(2, {10}).cpus_busy, 0);
}

TEST(ProcessTreeTest, ChildrenOfChildrenBelongToIt) {
  base::Tree tree;
  tree["/proc/10/task/10/children"].text = "11 12 ";
  tree["/proc/12/task/12/children"].text = "13 ";
  base::TreeFiles files(tree);
  EXPECT_EQ(process_tree(files, 10), (std::vector<int>{10, 11, 12, 13}));
}

TEST(SamplesTest, AbsenceSurvivesTheFile) {
  const TempFolder folder;
  Samples samples;
  model::GpuSample gpu;
  gpu.at_ns = 5;
  gpu.power_w = 123.5;
  gpu.temperature_c = base::absent(base::Absent::unsupported);
  samples.add(gpu);
  model::HostSample host_sample;
  host_sample.at_ns = 6;
  host_sample.cpus_busy = 2.5;
  samples.add(host_sample);
  samples.add(model::PowerSample{.at_ns = 7, .gpu = 3, .watts = 695.5});
  ASSERT_TRUE(samples.write(folder / "samples.fw"));
  const auto read = Samples::read(folder / "samples.fw");
  ASSERT_TRUE(read);
  ASSERT_EQ(read->gpu().size(), 1U);
  EXPECT_TRUE(read->gpu()[0].power_w.is(123.5));
  EXPECT_FALSE(read->gpu()[0].temperature_c);
  ASSERT_EQ(read->host().size(), 1U);
  EXPECT_EQ(read->host()[0].cpus_busy, 2.5);
  ASSERT_EQ(read->power().size(), 1U);
  EXPECT_EQ(read->power()[0].at_ns, 7U);
  EXPECT_EQ(read->power()[0].gpu, 3);
  EXPECT_EQ(read->power()[0].watts, 695.5);
}

TEST(SamplesTest, ALongRunKeepsItsWholeCourseInBoundedSpace) {
  Samples samples;
  model::GpuSample gpu;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    gpu.at_ns = i;
    samples.add(gpu);
  }
  EXPECT_LE(samples.gpu().size(), Samples::kMost);
  EXPECT_EQ(samples.gpu().front().at_ns, 0U);
  EXPECT_EQ(samples.gpu().back().at_ns, 99'999U);
}

TEST(SamplesTest, NoGpuOfSeveralLosesItsCourse) {
  Samples samples;
  for (std::uint64_t i = 0; i < 100'000; ++i)
    samples.add(model::PowerSample{.at_ns = i, .gpu = static_cast<int>(i % 2), .watts = 1});
  std::array<std::size_t, 2> early{};
  for (const auto& sample : samples.power())
    early[static_cast<std::size_t>(sample.gpu)] += sample.at_ns < 50'000 ? 1 : 0;
  EXPECT_EQ(early[0], early[1]);
}

TEST(SamplesTest, AFileOfSomethingElseIsRefused) {
  const TempFolder folder;
  EXPECT_FALSE(Samples::read(folder.write("samples.fw", "hello")));
  EXPECT_FALSE(Samples::read(folder / "not-there"));
}

}  // namespace
}  // namespace fullwatt::record
