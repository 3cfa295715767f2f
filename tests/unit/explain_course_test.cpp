// The run as a whole: trend, what lies between the steps, resources, energy, the epoch's end, ranks, remarks.

#include <string>

#include "tests/support/machines.hpp"
#include "tests/support/run_builder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/explain/explain.hpp"

namespace fullwatt::explain {
namespace {

using model::Phase;
using tests::RunBuilder;
using tests::Script;

constexpr const char* kUuid = "GPU-11111111-aaaa-bbbb-cccc-000000000001";
constexpr const char* kGemm = "sm80_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize128x128x32_stage4_tensor16x8x16_kernel";

Script step() {
  return Script().data(10, 1.0).launches(10, 14, kGemm, 0.4).sync(18);
}

/// A run on an H200 with samples every 10 ms.
model::Run run_on_h200(RunBuilder& builder) {
  builder.fact("gpu", std::string(R"({"index":0,"name":"NVIDIA H200","capability":"9.0","uuid":")") + kUuid + R"("})");
  builder.fact("flops", R"({"total":1e12,"by_dtype":{"bfloat16":1e12},"bytes":{"cuda":2e9,"cpu":7}})");
  auto run = builder.build();
  run.info.gpus.push_back({.nvml_index = 0, .uuid = kUuid, .name = "NVIDIA H200", .bdf = "0000:01:00.0", .used = true});
  run.machine = tests::machine_without_gpu();
  tests::add_nvidia(*run.machine, {.uuid = kUuid, .name = "NVIDIA H200", .compute_capability = "9.0"});
  auto& device = run.machine->nvml.devices.back();
  device.power_enforced_mw = 600'000;
  device.memory_total_bytes = 140 * tests::kGib;
  device.pcie_width = 16;
  device.pcie_max_generation = 5;
  for (double at = 0; at < builder.now_ms(); at += 10) {
    model::GpuSample sample;
    sample.at_ns = RunBuilder::at_ns(at);
    sample.power_w = 300.0;
    sample.memory_used_bytes = 14 * tests::kGib;
    sample.energy_mj = static_cast<std::uint64_t>(at * 300);
    sample.pcie_rx_kib_s = 1'000'000;
    run.gpu_samples.push_back(sample);
    run.host_samples.push_back({.at_ns = sample.at_ns, .cpus_training = 2.5});
  }
  return run;
}

const model::ResourceUse& resource(const model::Explanation& explanation, const std::string& id) {
  const auto at = std::ranges::find(explanation.resources, id, &model::ResourceUse::id);
  EXPECT_NE(at, explanation.resources.end()) << id;
  return *at;
}

TEST(Course, ResourcesAreHeldAgainstWhatTheCardCanDo) {
  RunBuilder builder;
  builder.train(step());
  const auto explanation = explain(run_on_h200(builder));
  EXPECT_NEAR(*resource(explanation, "power").used, 300, 1e-6);
  EXPECT_NEAR(*resource(explanation, "power").limit, 600, 1e-6);
  EXPECT_NEAR(*resource(explanation, "memory").used, 14, 1e-6);
  EXPECT_NEAR(*resource(explanation, "memory").limit, 140, 1e-6);
  const auto& compute = resource(explanation, "compute");
  EXPECT_NEAR(*compute.used, 1e12 / (explanation.step_ms.mean / 1e3) / 1e12, 1e-6);
  EXPECT_DOUBLE_EQ(*compute.limit, 989.5) << "bf16, as the kernels say";
  EXPECT_NEAR(*resource(explanation, "pcie").limit, 63.0, 0.1);
  EXPECT_NEAR(*resource(explanation, "pcie").used, 1.024, 1e-3);
  EXPECT_NEAR(*resource(explanation, "gpu-busy").used, 100 * *explanation.gpu_busy_ms / explanation.step_ms.mean, 1e-9);
  EXPECT_NEAR(*resource(explanation, "cpu").used, 2.5, 1e-9);
  EXPECT_NEAR(*resource(explanation, "memory-bandwidth").used, 2 / (explanation.step_ms.mean / 1e3), 1e-6);
  EXPECT_DOUBLE_EQ(*resource(explanation, "memory-bandwidth").limit, 4814);
}

TEST(Course, BandwidthIsNeverMoreThanTheCardsAndAbsentWithAReason) {
  RunBuilder cached;
  cached.train(step());
  cached.fact("flops", R"({"bytes":{"cuda":1e15}})");
  cached.fact("gpu", R"({"index":0,"name":"NVIDIA H200","capability":"9.0"})");
  EXPECT_DOUBLE_EQ(*resource(explain(cached.build()), "memory-bandwidth").used, 4814);
  RunBuilder compiled;
  compiled.train(step());
  compiled.fact("flops", R"({"reason":"the step is compiled"})");
  const auto explanation = explain(compiled.build());
  EXPECT_FALSE(resource(explanation, "memory-bandwidth").used.has_value());
  EXPECT_EQ(resource(explanation, "memory-bandwidth").reason, "the step is compiled");
}

TEST(Course, AMissingValueHasItsReason) {
  RunBuilder builder;
  builder.train(step());
  builder.run().info.sampler = "NVML could not be loaded";
  const auto explanation = explain(builder.build());
  EXPECT_FALSE(resource(explanation, "power").used.has_value());
  EXPECT_EQ(resource(explanation, "power").reason, "NVML could not be loaded");
  EXPECT_EQ(resource(explanation, "compute").reason, "operations were not counted");
}

TEST(Course, EnergyComesFromTheCountersAndCostsMoney) {
  RunBuilder builder;
  builder.train(step());
  auto run = run_on_h200(builder);
  run.info.price_per_kwh = 0.5;
  const auto explanation = explain(run);
  const double seconds = static_cast<double>(run.gpu_samples.back().at_ns - run.gpu_samples.front().at_ns) / 1e9;
  EXPECT_NEAR(*explanation.energy_kwh, 300 * seconds / 3.6e6, 1e-9);
  EXPECT_NEAR(*explanation.energy_cost, *explanation.energy_kwh * 0.5, 1e-12);
  run.info.gpus.front().used = false;
  EXPECT_NEAR(*explain(run).energy_kwh, *explanation.energy_kwh, 1e-12) << "the training names its GPU itself";
}

TEST(Course, EnergyIsThatOfPowerWhereTheCounterWasNotRead) {
  RunBuilder builder;
  builder.train(step());
  auto run = run_on_h200(builder);
  auto& samples = run.gpu_samples;
  ASSERT_GT(samples.size(), 20U);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].power_w = 100.0;
    if (i != 5 && i != samples.size() - 6) samples[i].energy_mj = base::absent(base::Absent::unsupported);
  }
  const auto seconds = [&](std::size_t from, std::size_t to) {
    return static_cast<double>(samples[to].at_ns - samples[from].at_ns) / 1e9;
  };
  const auto end = samples.size() - 1;
  const auto joules = 100 * seconds(0, 5) + 300 * seconds(5, end - 5) + 100 * seconds(end - 5, end);
  EXPECT_NEAR(*explain(run).energy_kwh, joules / 3.6e6, 1e-9);
  for (auto& sample : samples) sample.energy_mj = base::absent(base::Absent::unsupported);
  EXPECT_NEAR(*explain(run).energy_kwh, 100 * seconds(0, end) / 3.6e6, 1e-9);
}

TEST(Course, TheTrendHasAtMostFourHundredPointsWithPowerAndMemory) {
  RunBuilder builder;
  builder.train(step(), 3000);
  const auto explanation = explain(run_on_h200(builder));
  EXPECT_LE(explanation.trend.size(), 400U);
  EXPECT_GT(explanation.trend.size(), 200U);
  EXPECT_TRUE(std::ranges::is_sorted(explanation.trend, {}, &model::TrendPoint::at_s));
  const auto& point = explanation.trend[explanation.trend.size() / 4];
  EXPECT_NEAR(point.step_ms, explanation.step_ms.mean, 0.1);
  EXPECT_NEAR(point.data_ms, 1.0, 0.1);
  EXPECT_NEAR(point.power_w.value_or(0), 300, 1e-6);
  EXPECT_NEAR(point.memory_gib.value_or(0), 14, 1e-6);
}

TEST(Course, EvaluationAndCheckpointsLieBetweenTheSteps) {
  const auto evaluating = Script().begin(Phase::evaluation, 30).python(30, 400.0).end();
  const auto saving = Script().begin(Phase::save, 31).python(31, 100.0).end();
  RunBuilder builder;
  builder.plain(step(), 50)
      .flagged(evaluating, 1, record::kEvaluated)
      .flagged(saving, 1, record::kSaved)
      .plain(step(), 50);
  const auto explanation = explain(builder.build());
  const auto between = [&](const std::string& id) {
    const auto at = std::ranges::find(explanation.between, id, &model::BetweenSteps::id);
    return at == explanation.between.end() ? 0.0 : at->seconds;
  };
  EXPECT_NEAR(between("evaluation"), 0.4, 0.01);
  EXPECT_NEAR(between("checkpoint"), 0.1, 0.01);
  EXPECT_LT(explanation.step_ms.mean, 10);
}

TEST(Course, TheOwnCostIsToldForAStepAndForTheRun) {
  RunBuilder builder;
  builder.recording_cost(0.05, 0.2).train(Script().data(10, 1.0).launches(10, 14, kGemm, 0.001, 0.3), 500);
  const auto explanation = explain(builder.build());
  EXPECT_NEAR(explanation.overhead_steady_us, 4, 1e-9);
  // 12 steps of 10 launches at 0.05 and as many at 0.2 ms more: 30 ms; 0.004 ms of hooks a step.
  EXPECT_NEAR(explanation.overhead_share, (12 * 10 * 0.25 + 527 * 0.004) / builder.now_ms(), 0.004);
}

TEST(Course, FillingTheQueueAfterAWindowIsNoCost) {
  const auto ahead = Script().data(10, 0.01).launches(10, 14, kGemm, 1.0);
  RunBuilder builder;
  builder.train(ahead, 300);
  const auto explanation = explain(builder.build());
  EXPECT_NEAR(explanation.step_ms.mean, 10.0, 0.1);
  EXPECT_LT(explanation.overhead_share, 0.01);
}

TEST(Course, TheEndOfTheEpochIsForeseen) {
  RunBuilder builder;
  builder.fact("loader", R"({"id":1,"num_workers":2,"batches":1000})");
  builder.fact("epoch", R"({"loader":1,"batches":1000,"number":0})");
  builder.process().facts.back().json = R"({"kind":"epoch","at_ns":1000000000000,"loader":1,"batches":1000})";
  builder.train(step(), 100);
  const auto explanation = explain(builder.build());
  const double done = 100 + 27;
  EXPECT_NEAR(*explanation.epoch_left_s, (1000 - done) * explanation.step_ms.mean / 1e3, 0.1);
}

TEST(Course, TheCeilingIsTheMeanOfItsStepsOnceTheWorkersQueuesAreFull) {
  RunBuilder builder;
  builder.plain(step(), 50);
  builder.flagged(Script().python(1, 6.0), 6, record::kCeiling).flagged(Script().python(1, 2.0), 40, record::kCeiling);
  const auto explanation = explain(builder.build());
  EXPECT_NEAR(*explanation.ceiling_ms, 2.0, 0.01);
  EXPECT_GT(explanation.step_ms.mean, 4);
}

TEST(Course, SeveralRanksAreSummedUpEach) {
  RunBuilder first;
  first.process().rank = 0;
  first.train(step());
  RunBuilder second;
  second.process().rank = 1;
  second.process().pid = 4712;
  second.train(Script().data(10, 3.0).launches(10, 14, kGemm, 0.4).sync(18));
  auto run = first.build();
  run.processes.push_back(second.build().processes.front());
  const auto explanation = explain(run);
  ASSERT_EQ(explanation.ranks.size(), 2U);
  EXPECT_NEAR(explanation.ranks[1].data_ms, 3.0, 0.01);
  EXPECT_NEAR(explanation.ranks[1].busy_ms, 4.0, 0.1);
  EXPECT_LT(explanation.ranks[0].step_ms, explanation.ranks[1].step_ms);
  EXPECT_TRUE(explain(first.build()).ranks.empty());
}

TEST(Course, TheFactsTableNamesModelAndMachine) {
  RunBuilder builder;
  builder.fact("model",
               R"({"id":0,"class":"Net","parameters":25557032,"dtypes":{"float32":100},"devices":{"cuda:0":100}})");
  builder.fact("optimizer", R"({"id":0,"class":"AdamW","fused":true})");
  builder.train(step());
  const auto facts = explain(run_on_h200(builder)).facts;
  EXPECT_EQ(facts.at("model"), "Net");
  EXPECT_EQ(facts.at("parameters"), "25.6 M");
  EXPECT_EQ(facts.at("dtype"), "float32");
  EXPECT_EQ(facts.at("gpu"), "NVIDIA H200");
  EXPECT_EQ(facts.at("optimizer"), "AdamW, fused");
  EXPECT_EQ(facts.at("batch"), "32");
  EXPECT_EQ(facts.at("torch"), "2.11.0");
}

TEST(Course, TroublesAndLostRecordsBecomeRemarks) {
  RunBuilder builder;
  builder.train(step());
  builder.process().windows.front().lost = 7;
  builder.process().troubles.push_back({0, "the disk is full"});
  builder.process().troubles.push_back({0, "the disk is full"});
  const auto remarks = explain(builder.build()).remarks;
  ASSERT_EQ(remarks.size(), 2U);
  EXPECT_EQ(remarks[0], "the disk is full");
  EXPECT_TRUE(remarks[1].starts_with("7 records")) << remarks[1];
}

TEST(Course, TheExampleStepIsOneStepLong) {
  RunBuilder builder;
  builder.train(Script().data(10, 1.0).launches(900, 14, kGemm, 0.005, 0.02).sync(18));
  const auto explanation = explain(builder.build());
  EXPECT_NEAR(explanation.example_step_ms, explanation.step_ms.mean, 0.5);
  EXPECT_LE(explanation.example_step.size(), 400U);
  EXPECT_GT(explanation.example_step.size(), 3U);
  double host = 0;
  for (const auto& bar : explanation.example_step) {
    EXPECT_GE(bar.start_ms, 0);
    EXPECT_LE(bar.start_ms + bar.length_ms, explanation.example_step_ms + 1e-6);
    if (bar.lane == "host") host += bar.length_ms;
  }
  EXPECT_NEAR(host, explanation.example_step_ms, 0.01);
}

}  // namespace
}  // namespace fullwatt::explain
