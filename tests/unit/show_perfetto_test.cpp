#include <algorithm>
#include <set>
#include <sstream>

#include "tests/support/hostile_explanation.hpp"
#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/model/json.hpp"
#include "fullwatt/show/perfetto.hpp"

namespace fullwatt::show {
namespace {

using model::Json;
using model::Run;

constexpr std::uint64_t kStart = 987'654'321'000'000;
constexpr std::uint64_t kMs = 1'000'000;

/// Two steps of a training with one kernel and one copy on two streams.
Run sample_run() {
  Run run;
  run.info.gpus = {{0, "GPU-1", "NVIDIA H200", "0000:18:00.0", true}};
  model::TrainingProcess process;
  process.pid = 4242;
  process.rank = 0;
  process.opened_ns = kStart;
  process.texts = {"", "cudaLaunchKernel", "gemm<float>", "train.py:41:train_epoch"};
  process.stacks = {{{"/x/train.py", 41, "train_epoch"}, {"/x/train.py", 90, "<module>"}}};
  for (std::uint64_t i = 0; i < 3; ++i) {
    model::OptimizerStep step;
    step.number = i + 1;
    step.end_ns = kStart + (20 + 10 * i) * kMs;
    step.samples = 64;
    process.steps.push_back(step);
  }
  process.windows = {{model::RecordedWindow::Mode::causes, kStart + 20 * kMs, kStart + 40 * kMs, 2, 0}};
  process.phases = {{model::Phase::data, kStart + 21 * kMs, kStart + 25 * kMs, 3}};
  process.samples = {{kStart + 21 * kMs, 0}, {kStart + 22 * kMs, 0}, {kStart + 23 * kMs, 0}, {kStart + 38 * kMs, 0}};
  process.calls = {{kStart + 26 * kMs, kStart + 26 * kMs + 5250, 1, 77, 4242}};
  model::GpuActivity kernel;
  kernel.start_ns = kStart + 27 * kMs;
  kernel.end_ns = kStart + 28 * kMs;
  kernel.name = 2;
  kernel.correlation = 77;
  kernel.stream = 7;
  auto copy = kernel;
  copy.kind = model::GpuActivity::Kind::copy;
  copy.copy_kind = 1;
  copy.correlation = 78;
  copy.stream = 20;
  copy.bytes = 1 << 20;
  process.activities = {kernel, copy};
  process.fetches = {{-1, kStart + 21 * kMs, kStart + 25 * kMs, 3 * kMs, kMs, 64, 12}};
  process.memory = {{kStart + 20 * kMs, 0, 1ULL << 30U, 2ULL << 30U, 0, 0}};
  process.losses = {{kStart + 20 * kMs, 1, 0.5}, {kStart + 30 * kMs, 2, std::numeric_limits<double>::quiet_NaN()}};
  process.marks = {{kStart + 5 * kMs, "first step"}};
  run.processes = {process};
  model::GpuSample sample;
  sample.at_ns = kStart + 10 * kMs;
  sample.power_w = 214.0;
  sample.utilization_percent = 38;
  run.gpu_samples = {sample};
  model::HostSample host;
  host.at_ns = kStart + 10 * kMs;
  host.cpus_training = 1.5;
  run.host_samples = {host};
  return run;
}

Json exported(const Run& run) {
  std::ostringstream out;
  write_perfetto(run, out);
  auto json = Json::parse(out.str(), nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << out.str().substr(0, 400);
  return json;
}

/// The events of one kind, by name.
std::vector<Json> events(const Json& json, const std::string& phase, const std::string& name = {}) {
  std::vector<Json> found;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == phase && (name.empty() || event["name"] == name)) found.push_back(event);
  }
  return found;
}

TEST(PerfettoTest, AnEmptyRunIsAnEmptyTrace) {
  EXPECT_EQ(exported(model::Run())["traceEvents"].size(), 0U);
}

TEST(PerfettoTest, TimesAreMicrosecondsSinceTheStart) {
  const auto json = exported(sample_run());
  const auto call = events(json, "X", "cudaLaunchKernel").at(0);
  EXPECT_DOUBLE_EQ(call["ts"], 26'000.0);
  EXPECT_DOUBLE_EQ(call["dur"], 5.25);
}

TEST(PerfettoTest, EverythingRecordedHasItsSlice) {
  const auto json = exported(sample_run());
  EXPECT_EQ(events(json, "X", "step 2").size(), 1U);
  EXPECT_EQ(events(json, "X", "step 1").size(), 0U) << "its start is not known";
  EXPECT_EQ(events(json, "X", "data").at(0)["args"]["site"], "train.py:41:train_epoch");
  EXPECT_EQ(events(json, "X", "gemm<float>").size(), 1U);
  EXPECT_EQ(events(json, "X", "copy to the GPU").at(0)["args"]["bytes"], 1 << 20);
  EXPECT_EQ(events(json, "X", "batch").size(), 1U);
  EXPECT_EQ(events(json, "X", "recorded: causes").size(), 1U);
  EXPECT_EQ(events(json, "i", "first step").size(), 1U);
}

TEST(PerfettoTest, SamplesOfOneLineJoinUntilRecordingPauses) {
  const auto lines = events(exported(sample_run()), "X", "train.py:41 train_epoch");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_DOUBLE_EQ(lines[0]["ts"], 21'000.0);
  EXPECT_DOUBLE_EQ(lines[0]["dur"], 3'000.0);
  EXPECT_DOUBLE_EQ(lines[1]["ts"], 38'000.0);
}

TEST(PerfettoTest, StreamsAreTracksAndLaunchesPointToTheirKernels) {
  const auto json = exported(sample_run());
  const auto kernel = events(json, "X", "gemm<float>").at(0);
  const auto copy = events(json, "X", "copy to the GPU").at(0);
  EXPECT_EQ(kernel["pid"], copy["pid"]);
  EXPECT_NE(kernel["tid"], copy["tid"]);
  ASSERT_EQ(events(json, "s").size(), 1U);
  const auto from = events(json, "s").at(0);
  const auto to = events(json, "f").at(0);
  EXPECT_EQ(from["id"], to["id"]);
  EXPECT_EQ(from["pid"], 4242);
  EXPECT_EQ(to["tid"], kernel["tid"]);
}

TEST(PerfettoTest, FiguresAreCountersAndAbsentOnesAreLeftOut) {
  const auto json = exported(sample_run());
  EXPECT_DOUBLE_EQ(events(json, "C", "power, W").at(0)["args"]["value"], 214.0);
  EXPECT_DOUBLE_EQ(events(json, "C", "reserved, GPU 0, GiB").at(0)["args"]["value"], 2.0);
  EXPECT_EQ(events(json, "C", "memory, GiB").size(), 0U);
  EXPECT_EQ(events(json, "C", "loss").size(), 1U);
}

TEST(PerfettoTest, EveryTrackHasAName) {
  const auto json = exported(sample_run());
  std::set<std::pair<Json, Json>> named;
  for (const auto& event : events(json, "M", "thread_name")) named.emplace(event["pid"], event["tid"]);
  for (const auto& event : events(json, "X")) EXPECT_TRUE(named.contains({event["pid"], event["tid"]})) << event;
}

TEST(PerfettoTest, HostileNamesAndBrokenNumbersStayInsideTheirStrings) {
  auto run = sample_run();
  auto& process = run.processes[0];
  process.texts = {tests::kHostile, tests::kHostile, tests::kHostile, tests::kHostile};
  process.stacks = {{{tests::kHostile, -1, tests::kHostile}}};
  process.marks[0].text = tests::kHostile;
  run.info.gpus[0].name = tests::kHostile;
  process.activities[0].name = 4'000'000'000;
  process.activities[0].end_ns = 0;
  process.activities[1].device = -5;
  process.samples[0].stack = 4'000'000'000;
  process.fetches[0].worker = -2'000'000'000;
  run.gpu_samples[0].gpu = -1;
  const auto json = exported(run);
  EXPECT_EQ(events(json, "X").size(), events(exported(sample_run()), "X").size());
}

}  // namespace
}  // namespace fullwatt::show
