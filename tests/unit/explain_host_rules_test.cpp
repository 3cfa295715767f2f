#include "tests/support/trainings.hpp"
#include <gtest/gtest.h>

#include "fullwatt/explain/rules/rules.hpp"

// What the rules see in the host, the card, the course of the run, other ranks, and the settings.
namespace fullwatt::explain {
namespace {

using namespace fullwatt::tests;  // NOLINT: the vocabulary of these tests
using model::Phase;

/// The GPU waits 60 of about 95 ms for Python.
RunBuilder waiting(const Said& said = {}) {
  auto script = Script().data(12, 0.02).python(14, 60).launches(8, 15, kConvolution, 2);
  return training(finish(script, 2), said);
}

RunBuilder healthy(const Said& said = {}) {
  return training(healthy_script(), said);
}

/// A training on the CPU.
RunBuilder on_cpu(const std::string& settings = R"("threads":8)", const std::string& environment = "") {
  RunBuilder builder;
  builder.without_gpu_records();
  builder.fact("model", R"({"id":1,"class":"Net","parameters":1000,"devices":{"cpu":1000}})");
  builder.fact("settings", object(R"("when":"end","values":{)" + settings + "}"));
  builder.fact("environment", object(R"("values":{)" + environment + "}"));
  builder.train(Script().library(15, 20).begin(Phase::backward, 18).library(18, 30).end());
  builder.run().machine = machine_without_gpu();
  builder.run().machine->host.system.cpus = "0-15";
  builder.run().machine->host.system.online_cpus = 16;
  return builder;
}

void each_sample(RunBuilder& builder, const auto& change) {
  for (auto& sample : builder.run().host_samples) change(sample);
}
void each_gpu_sample(RunBuilder& builder, const auto& change) {
  for (auto& sample : builder.run().gpu_samples) change(sample);
}

TEST(HostRulesTest, OtherProgramsOnAFullMachineAreContention) {
  auto builder = waiting();
  each_sample(builder, [](auto& sample) { sample.cpus_busy = 15.9, sample.cpus_training = 3; });
  EXPECT_EQ(expect_found(builder, "cpu-contention").facts.at("value"), "12.9");
  each_sample(builder, [](auto& sample) { sample.cpus_busy = 15.9, sample.cpus_training = 15.5; });
  expect_not_found(builder, "cpu-contention");
}

TEST(HostRulesTest, AQuotaThatStopsTheTrainingIsPricedByItsShare) {
  auto builder = waiting();
  builder.run().machine->host.cpu_quota = 2.0;
  each_sample(builder, [](auto& sample) { sample.throttled = 0.3; });
  const auto finding = expect_found(builder, "cpu-quota-throttles");
  EXPECT_EQ(finding.facts.at("limit"), "2");
  EXPECT_NEAR(*finding.gain_ms, 0.3 * *finding.charged_ms, 0.01);
}

TEST(HostRulesTest, ThreadsOfManyProcessesAreTooMany) {
  Said said;
  said.settings = R"("threads":16)";
  said.environment = R"("OMP_NUM_THREADS":"16")";
  auto builder = waiting(said);
  each_sample(builder, [](auto& sample) { sample.cpus_busy = 16, sample.cpus_training = 15.9; });
  EXPECT_EQ(expect_found(builder, "threads-oversubscribed").facts.at("expected"), "1");
}

/// 48 ms of computing on 16 full CPUs; `said` is the fact of its operations.
RunBuilder small_operations(const std::string& said, double of_training,
                            const std::string& settings = R"("threads":8)") {
  auto builder = on_cpu(settings);
  builder.fact("flops", said);
  add_samples(builder.run(), 16, of_training);
  return builder;
}

TEST(HostRulesTest, ThreadsThatShareSmallOperationsOnFullCpusWaitForEachOther) {
  const std::string small = R"({"total":2e7,"operations":100,"bytes":{"cpu":5e6}})";
  const auto finding = expect_found(small_operations(small, 3), "threads-wait");
  EXPECT_EQ(finding.facts.at("expected"), "1");
  EXPECT_EQ(finding.facts.at("limit"), "4.00") << "2 of work, and 100 operations to begin";
  EXPECT_NEAR(*finding.gain_ms, *finding.charged_ms, 1e-9);
  EXPECT_GT(*finding.gain_ms, 30);
  expect_not_found(small_operations(small, 15), "threads-wait");  // the CPUs are full of the training itself
  expect_not_found(small_operations(small, 3, R"("threads":1)"), "threads-wait");
  expect_not_found(small_operations(R"({"total":2e9,"operations":100})", 3), "threads-wait");  // there is work for all
  expect_not_found(small_operations(R"({"total":2e7})", 3), "threads-wait");  // of an agent that did not count them
  expect_not_found(small_operations(R"({"reason":"the step is compiled"})", 3), "threads-wait");
}

TEST(HostRulesTest, FewThreadsOnAnIdleMachineHurtOnlyOnTheCpu) {
  auto few = on_cpu(R"("threads":2)");
  add_samples(few.run(), 2, 2);
  const auto finding = expect_found(few, "threads-too-few");
  EXPECT_EQ(finding.facts.at("expected"), "16");
  EXPECT_GT(*finding.gain_ms, 10);
  auto one = on_cpu(R"("threads":1)", R"("OMP_NUM_THREADS":"1")");
  add_samples(one.run(), 1, 1);
  expect_found(one, "omp-threads-one");
  Said said;
  said.settings = R"("threads":1)";
  expect_not_found(healthy(said), "threads-too-few");
}

TEST(HostRulesTest, OneCpuForAllIsNamed) {
  auto builder = waiting();
  builder.run().machine->host.system.cpus = "3";
  expect_found(builder, "cpu-affinity-one-core");
}

TEST(HostRulesTest, SwappedMemoryIsFoundWhileItComesBack) {
  auto builder = waiting();
  each_sample(builder, [](auto& sample) { sample.swap_in_bytes = 40'000'000; });
  expect_found(builder, "io-or-swap-bound");
}

TEST(CourseRulesTest, LongStepsThatNothingExplainsAreOutliers) {
  RunBuilder builder;
  say(builder, {});
  auto slow = forward().library(15, 300);
  finish(slow);
  for (int i = 0; i < 10; ++i) builder.plain(healthy_script(), 19).plain(slow, 1);
  builder.times(healthy_script(), 10).causes(healthy_script(), 10);
  const auto finding = expect_found(builder, "step-outliers");
  EXPECT_EQ(finding.facts.at("count"), "20");
  EXPECT_NEAR(*finding.gain_ms, 300 / 20.0, 3);
  EXPECT_EQ(finding.severity, model::Severity::note);
  add_samples(builder.run(), 16, 5);
  each_sample(builder, [](auto& sample) { sample.stolen = 10, sample.cpu_pressure = 0.1; });
  const auto taken = expect_found(builder, "step-outliers");
  EXPECT_EQ(taken.severity, model::Severity::info);
  EXPECT_FALSE(taken.gain_ms.has_value());
}

TEST(CourseRulesTest, LongStepsBeforeTheTrainingBecameFasterGiveNoMoreThanItsMean) {
  RunBuilder builder;
  say(builder, {});
  auto slow = forward().library(15, 500);
  finish(slow);
  builder.plain(slow, 60);
  for (int i = 0; i < 10; ++i) builder.plain(healthy_script(), 19).plain(slow, 1);
  builder.times(healthy_script(), 10).causes(healthy_script(), 10);
  const auto explanation = explain::explain(builder.build());
  const auto usual = explanation.step_ms.median;
  EXPECT_LE(expect_found(explanation, "step-outliers").charged_ms.value_or(0), explanation.step_ms.mean - usual + 1e-9);
}

TEST(CourseRulesTest, StepsThatAreLongerAlikeAndInNoRhythmAreTheMachines) {
  const auto with = [](const Script& slow) {
    RunBuilder builder;
    say(builder, {});
    for (const int between : {19, 7, 31, 12, 25, 9, 40, 15, 22, 11})
      builder.plain(healthy_script(), between).plain(slow, 1);
    builder.times(healthy_script(), 10).causes(healthy_script(), 10);
    return builder;
  };
  auto slower = forward(40);
  auto alike = with(finish(slower, 30));
  const auto finding = expect_found(alike, "step-outliers");
  EXPECT_EQ(finding.severity, model::Severity::info);
  EXPECT_FALSE(finding.gain_ms.has_value());
  auto one_place = forward().begin(Phase::backward, 18).library(18, 300).end();
  auto in_one_place = with(finish(one_place));
  EXPECT_EQ(expect_found(in_one_place, "step-outliers").severity, model::Severity::note);
}

TEST(CourseRulesTest, LongStepsThatWereRecordedNameTheirLine) {
  RunBuilder builder;
  say(builder, {});
  auto slow = forward().python(77, 300);
  finish(slow);
  for (int i = 0; i < 10; ++i) builder.plain(healthy_script(), 19).plain(slow, 1);
  builder.times(healthy_script(), 10).causes(healthy_script(), 9).causes(slow, 4);
  EXPECT_EQ(expect_found(builder, "step-outliers").line, 77);
}

TEST(CourseRulesTest, AStepThatPaysForHurriedOnesIsNoOutlier) {
  RunBuilder builder;
  say(builder, {});
  auto hurried = Script().library(15, 2);
  auto paying = forward().library(15, 190);
  finish(paying);
  for (int i = 0; i < 10; ++i) builder.plain(healthy_script(), 15).plain(hurried, 4).plain(paying, 1);
  builder.times(healthy_script(), 10).causes(healthy_script(), 10);
  expect_not_found(builder, "step-outliers");
}

TEST(CourseRulesTest, WhatTheGpuStillDoesAfterAnEvaluationBelongsToIt) {
  auto evaluating = healthy_script();
  evaluating.begin(Phase::evaluation, 30).library(30, 100).end().library(31, 5000);
  auto builder = healthy();
  builder.flagged(evaluating, 1, record::kEvaluated).plain(healthy_script(), 5);
  builder.fact("evaluation", R"({"site":{"file":"/home/ada/train.py","line":30,"function":"validate"}})");
  const auto finding = expect_found(builder, "evaluation-dominates");
  EXPECT_NEAR(std::stod(finding.facts.at("seconds")), 5.1, 0.2);
  EXPECT_EQ(finding.line, 30);
  EXPECT_GT(*finding.gain_ms, 0) << "spread over the steps";
  EXPECT_TRUE(finding.between_steps);
}

TEST(CourseRulesTest, EvaluationAndSavingAreToldByTheirShareOfTheRun) {
  auto evaluating = healthy_script();
  evaluating.begin(Phase::evaluation, 30).library(30, 8000).end();
  auto saving = healthy_script();
  saving.begin(Phase::save, 31).library(31, 3000).end();
  auto builder = healthy();
  builder.flagged(evaluating, 1, record::kEvaluated)
      .plain(healthy_script(), 5)
      .flagged(saving, 1, record::kSaved)
      .plain(healthy_script(), 5);
  builder.fact("save",
               R"({"site":{"file":"/home/ada/train.py","line":31,"function":"main"},"bytes":1000,"seconds":3})");
  expect_found(builder, "evaluation-dominates");
  EXPECT_EQ(expect_found(builder, "checkpoints-dominate").line, 31);
}

TEST(LeakRulesTest, MemoryThatGrowsToTheEndIsALeakAndACacheThatFillsIsNone) {
  constexpr std::uint64_t kMiB = 1024ULL * 1024;
  auto leaking = healthy();
  for (std::uint64_t i = 0; i < 40; ++i)
    leaking.process().memory.push_back(
        {RunBuilder::at_ns(static_cast<double>(i) * 1000), 0, (1000 + i * 20) * kMiB, 4000 * kMiB, 0, 10});
  EXPECT_NEAR(std::stod(expect_found(leaking, "device-memory-leak").facts.at("value")), 20 * 55, 200);
  auto filling = healthy();
  for (std::uint64_t i = 0; i < 40; ++i)
    filling.process().memory.push_back({RunBuilder::at_ns(static_cast<double>(i) * 1000), 0,
                                        (1000 + std::min<std::uint64_t>(i, 12) * 60) * kMiB, 4000 * kMiB, 0, 10});
  expect_not_found(filling, "device-memory-leak");
}

TEST(LeakRulesTest, MainMemoryThatGrowsIsALeak) {
  auto builder = healthy();
  std::uint64_t bytes = 4 * kGib;
  each_sample(builder, [&](auto& sample) { sample.training_rss_bytes = bytes += kGib / 8; });
  expect_found(builder, "host-memory-leak");
}

TEST(LeakRulesTest, FilesThatAreMappedAreNoLeakAndTheEndOfTheProgramHidesNone) {
  auto mapped = healthy();
  std::uint64_t bytes = 4 * kGib;
  each_sample(mapped, [&](auto& sample) {
    sample.training_rss_bytes = bytes += kGib / 8;
    sample.training_shared_bytes = bytes - 2 * kGib;
  });
  expect_not_found(mapped, "host-memory-leak");
  auto ended = healthy();
  each_sample(ended, [&](auto& sample) { sample.training_rss_bytes = bytes += kGib / 8; });
  model::HostSample gone;
  gone.at_ns = RunBuilder::at_ns(1e9);
  ended.run().host_samples.push_back(gone);
  expect_found(ended, "host-memory-leak");
}

TEST(LeakRulesTest, StepsThatGetLongerAreADecay) {
  auto builder = healthy();
  for (std::uint64_t i = 0; i < 40; ++i) {
    model::TrendBucket bucket;
    bucket.plain_steps = 10;
    bucket.plain_sum_ns = 10 * (50 + i) * 1'000'000;
    builder.process().trend.push_back(bucket);
  }
  EXPECT_GT(std::stod(expect_found(builder, "step-time-decay").facts.at("value")), 20);
}

TEST(LeakRulesTest, AHostThatHurriesAheadAtTheBeginningIsNoDecay) {
  auto builder = healthy();
  for (std::uint64_t i = 0; i < 160; ++i) {
    model::TrendBucket bucket;
    bucket.plain_steps = 1;
    bucket.plain_sum_ns = (i < 80 ? 1'300'000 : 43'800'000) + i % 7 * 10'000;
    builder.process().trend.push_back(bucket);
  }
  expect_not_found(builder, "step-time-decay");
}

TEST(LeakRulesTest, NoiseAboutTheSameLengthIsNoDecay) {
  auto builder = healthy();
  for (std::uint64_t i = 0; i < 40; ++i) {
    model::TrendBucket bucket;
    bucket.plain_steps = 1;
    bucket.plain_sum_ns = (i % 7 == 0 ? 10 : i % 9 == 0 ? 150 : 50 + i / 10) * 1'000'000;
    builder.process().trend.push_back(bucket);
  }
  expect_not_found(builder, "step-time-decay");
}

TEST(DeviceRulesTest, ATrainingOnTheCpuBesideAGpuIsAnError) {
  auto builder = on_cpu();
  builder.fact("process", R"({"pid":1,"torch":"2.11.0+cu130","cuda":"13.0"})");
  expect_not_found(builder, "model-on-cpu");
  add_nvidia(*builder.run().machine);
  const auto finding = expect_found(builder, "model-on-cpu");
  EXPECT_EQ(finding.severity, model::Severity::error);
  EXPECT_GT(*finding.gain_ms, 10);
}

TEST(DeviceRulesTest, AGpuThatCannotBeUsedIsExplainedByTheLayersBelow) {
  auto builder = on_cpu();
  builder.fact("process", R"({"pid":1,"torch":"2.11.0+cu130","cuda":"13.0"})");
  auto& machine = *builder.run().machine;
  add_nvidia(machine);
  machine.hardware.gpus.back().driver = "nouveau";
  machine.nvml.devices.clear();
  machine.cuda.answers.devices.clear();
  expect_not_found(builder, "model-on-cpu");
  const auto finding = expect_found(builder, "nouveau-bound");
  EXPECT_NEAR(*finding.charged_ms, 50, 1) << "the whole step is computing";
  EXPECT_GT(*finding.gain_ms, 10);
}

TEST(DeviceRulesTest, AModelOnTwoDevicesAndInputsElsewhereAreNamed) {
  Said said;
  said.model = R"("class":"Net","parameters":100,"devices":{"cpu":40,"cuda:0":60})";
  EXPECT_EQ(expect_found(healthy(said), "parameters-on-two-devices").facts.at("value"), "cpu (40), cuda:0 (60)");
  Said inputs;
  inputs.device_check =
      R"("parameters":{"cuda:0":160},"inputs":{"cpu":1},"consistent":false,"uuid":"11111111-aaaa-bbbb-cccc-000000000001")";
  EXPECT_EQ(expect_found(healthy(inputs), "inputs-on-another-device").facts.at("value"), "cpu");
}

TEST(DeviceRulesTest, AFasterFreeGpuIsNamed) {
  Said said;
  said.gpu = R"("index":0,"name":"Tesla T4","uuid":"33333333-aaaa-bbbb-cccc-000000000001","capability":"7.5")";
  said.device_check =
      R"("parameters":{"cuda:0":160},"inputs":{"cuda:0":1},"consistent":true,"uuid":"33333333-aaaa-bbbb-cccc-000000000001")";
  said.autocast = "";
  auto builder = healthy(said);
  add_nvidia(*builder.run().machine, {.bdf = "0000:02:00.0",
                                      .uuid = "GPU-33333333-aaaa-bbbb-cccc-000000000001",
                                      .name = "Tesla T4",
                                      .compute_capability = "7.5",
                                      .memory_bytes = 16 * kGib});
  EXPECT_EQ(expect_found(builder, "slower-gpu-used").facts.at("expected"), "NVIDIA H200");
  expect_not_found(healthy(), "slower-gpu-used");
}

TEST(DeviceRulesTest, TheGpuThatWasAskedForMustBeTheOne) {
  auto builder = healthy();
  builder.run().info.gpu_asked = kUuid;
  expect_not_found(builder, "gpu-not-as-asked");
  builder.run().info.gpu_asked = "GPU-99999999-aaaa-bbbb-cccc-000000000001";
  EXPECT_EQ(expect_found(builder, "gpu-not-as-asked").facts.at("value"), kUuid);
}

TEST(DeviceRulesTest, OthersOnTheSameGpuAreNamed) {
  auto builder = healthy();
  auto& device = builder.run().machine->nvml.devices.front();
  device.utilization_gpu = 60;
  device.processes = std::vector<model::GpuProcess>{{99, 1000U, "compute", "python"}};
  EXPECT_EQ(expect_found(builder, "gpu-shared").facts.at("process"), "python (99)");
}

/// Samples with these reasons to slow down, at this clock; the card can do 2400 MHz.
RunBuilder slowed(std::uint64_t reasons, int clock, int temperature = 60) {
  auto builder = healthy();
  each_gpu_sample(builder, [&](auto& sample) {
    sample.throttle_reasons = reasons, sample.sm_clock_mhz = clock, sample.temperature_c = temperature;
  });
  return builder;
}

TEST(HardwareRulesTest, EveryReasonToSlowDownHasItsFinding) {
  namespace event = model::clock_event;
  const auto hot = expect_found(slowed(event::kSwThermal, 1200, 88), "thermal-throttle");
  EXPECT_EQ(hot.facts.at("temperature"), "88");
  EXPECT_NEAR(*hot.gain_ms, 0.7 * 0.5 * 56.5, 3);
  expect_found(slowed(event::kHwPowerBrake, 1000), "hw-power-brake");
  expect_found(slowed(event::kHwSlowdown, 1000), "hw-slowdown-fast-trigger");
  expect_found(slowed(event::kSyncBoost, 1500), "sync-boost-group");
  expect_found(slowed(event::kDisplayClock, 1500), "display-clock-limit");
}

TEST(HardwareRulesTest, APowerCapCountsOnlyWhereItWasLowered) {
  auto builder = slowed(model::clock_event::kSwPowerCap, 1500);
  auto& device = builder.run().machine->nvml.devices.front();
  device.power_default_mw = 700'000;
  device.power_enforced_mw = 700'000;
  expect_not_found(builder, "power-cap-lowered");
  device.power_enforced_mw = 350'000;
  EXPECT_EQ(expect_found(builder, "power-cap-lowered").facts.at("limit"), "350");
}

TEST(HardwareRulesTest, AClockThatStandsStillIsLocked) {
  EXPECT_EQ(expect_found(slowed(model::clock_event::kApplicationClocks, 1200), "clocks-locked").facts.at("value"),
            "1200");
  expect_not_found(slowed(0, 2350), "clocks-locked");
}

TEST(HardwareRulesTest, ASlowLinkCountsWhereCopiesLieOpen) {
  // 300 MB in 25 ms are 12 GB/s: PCIe 3 where 5 is possible.
  auto script = Script().data(12, 0.02).copy(13, 300'000'000, 25, false).launches(8, 15, kConvolution, 2);
  auto builder = training(finish(script, 2));
  auto& device = builder.run().machine->nvml.devices.front();
  device.pcie_width = 16;
  device.pcie_max_width = 16;
  device.pcie_max_generation = 5;
  EXPECT_EQ(expect_found(builder, "pcie-gen-stuck-low").facts.at("value"), "3");
  expect_found(builder, "copies-fill-the-bus");
  device.pcie_width = 4;
  EXPECT_EQ(expect_found(builder, "pcie-width-reduced").facts.at("value"), "4");
}

/// A second rank beside the first, which plays this script.
void add_rank(RunBuilder& builder, const Script& script, int rank) {
  RunBuilder other;
  other.train(script);
  auto process = other.process();
  process.pid = 4711 + rank;
  process.rank = rank;
  builder.run().processes.push_back(process);
}

TEST(DistributedRulesTest, TheRankThatAllWaitForIsNamed) {
  auto builder = healthy();
  builder.process().rank = 0;
  auto slow = forward(6);
  add_rank(builder, finish(slow, 5), 1);
  EXPECT_EQ(expect_found(builder, "rank-straggler").facts.at("rank"), "1");
  auto starved = healthy();
  starved.process().rank = 0;
  auto late = Script().data(12, 30).launches(8, 15, kConvolution, 4);
  add_rank(starved, finish(late), 1);
  EXPECT_EQ(expect_found(starved, "rank-data-straggler").facts.at("rank"), "1");
  expect_not_found(starved, "rank-straggler");
}

TEST(DistributedRulesTest, HowGradientsTravelIsLookedAt) {
  auto parallel = healthy();
  parallel.fact("data_parallel",
                R"({"devices":["0","1"],"site":{"file":"/home/ada/train.py","line":8,"function":"main"}})");
  EXPECT_EQ(expect_found(parallel, "data-parallel-used").line, 8);

  auto script = forward(2).begin(Phase::backward, 18).launches(8, 18, kConvolution, 1).sync(18).library(18, 15).end();
  auto gloo = training(script.sync(20));
  gloo.fact("distributed", R"({"backend":"gloo","world_size":2,"find_unused_parameters":true})");
  EXPECT_EQ(expect_found(gloo, "backend-not-nccl").facts.at("value"), "gloo");
  expect_found(gloo, "find-unused-parameters-on");

  auto exchanging = forward(2).launch(18, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 20);
  expect_found(training(finish(exchanging, 1)), "communication-exposed");
}

TEST(SettingsRulesTest, EachSettingThatIsIgnoredIsNamed) {
  Said said;
  said.settings = R"("cudnn.benchmark":false,"cudnn.deterministic":true)";
  said.autocast = "";
  auto builder = healthy(said);
  builder.run().config_files["/home/ada/config.yaml"] =
      "num_workers: 24\nbatch_size: 512\namp: true\ncompile: true\ncudnn_benchmark: true\npin_memory: false\n";
  const auto explanation = explain(builder.build());
  EXPECT_EQ(expect_found(explanation, "config-workers-ignored").line, 9);
  EXPECT_EQ(expect_found(explanation, "config-batch-size-ignored").facts.at("value"), "512");
  EXPECT_EQ(expect_found(explanation, "config-amp-ignored").facts.at("path"), "config.yaml:3");
  expect_found(explanation, "config-compile-ignored");
  expect_found(explanation, "config-cudnn-benchmark-ignored");
  EXPECT_EQ(expect_found(explanation, "config-setting-ignored").facts.at("variable"), "loader.pin_memory");
}

TEST(SettingsRulesTest, AValueFromTheCommandLineIsNoSurprise) {
  auto builder = healthy();
  builder.run().config_files["/home/ada/config.yaml"] = "num_workers: 24\n";
  builder.fact("argument", R"({"values":{"num_workers":8},"defaults":{"num_workers":4},"given":["num_workers"]})");
  expect_not_found(builder, "config-workers-ignored");
}

TEST(SettingsRulesTest, ABooleanComparedWithTextIsFound) {
  auto builder = healthy();
  builder.run().config_files["/home/ada/config.yaml"] = "train:\n  amp: true\n  mode: fast\n";
  builder.run().source_facts = R"({"files":[{"path":"/home/ada/engine.py","comparisons":[
    {"what":"config['amp']","key":"amp","literal":"bf16","type":"str","line":71,"function":"Engine.make","converted":false},
    {"what":"mode","key":"mode","literal":"fast","type":"str","line":72,"function":"","converted":false}]}]})";
  const auto explanation = explain(builder.build());
  const auto finding = expect_found(explanation, "setting-wrong-type");
  EXPECT_EQ(finding.line, 71);
  EXPECT_EQ(finding.file, "/home/ada/engine.py");
  EXPECT_EQ(finding.facts.at("path"), "config.yaml:2");
  EXPECT_EQ(all_of(explanation, "setting-wrong-type").size(), 1U);
}

TEST(SettingsRulesTest, AValueThatIsHandledForEveryTypeIsFine) {
  for (const auto* more : {R"("truths":[{"key":"amp"}])", R"("truths":[])"}) {
    auto builder = healthy();
    builder.run().config_files["/home/ada/config.yaml"] = "amp: true\n";
    const bool truth = std::string(more).find("amp") != std::string::npos;
    builder.run().source_facts = std::string(R"({"files":[{"path":"a.py",)") + more +
                                 R"(,"comparisons":[{"key":"amp","literal":"bf16","type":"str","line":3,"converted":)" +
                                 (truth ? "false" : "true") + "}]}]}";
    expect_not_found(builder, "setting-wrong-type");
  }
}

TEST(SettingsRulesTest, AVariableOfTheSameNameIsAnotherThing) {
  auto builder = healthy();
  builder.run().config_files["/home/ada/config.yaml"] = "stage: 1\nverbose: true\n";
  builder.run().source_facts = R"({"files":[{"path":"a.py","comparisons":[
    {"what":"stage","key":"stage","literal":"fit","type":"str","line":3,"converted":false},
    {"what":"verbose","key":"verbose","literal":"yes","type":"str","line":4,"converted":false}]}]})";
  expect_not_found(builder, "setting-wrong-type");
}

TEST(SettingsRulesTest, AnOptimisationThatNothingCallsIsFound) {
  auto builder = healthy();
  const std::string source = R"({"files":[{"path":"/home/ada/setup.py","functions":[
    {"name":"apply_hardware_optimizations","qualified":"Config.apply_hardware_optimizations","line":40,"end_line":44},
    {"name":"other","qualified":"other","line":50,"end_line":51}],
    "assignments":[{"target":"torch.backends.cudnn.benchmark","value":"True","line":41,"function":"Config.apply_hardware_optimizations"}],
    "calls":[{"name":"torch.set_float32_matmul_precision","line":42,"function":"Config.apply_hardware_optimizations"}],"references":[]}]})";
  builder.run().source_facts = source;
  const auto finding = expect_found(builder, "optimisation-never-called");
  EXPECT_EQ(finding.line, 40);
  EXPECT_EQ(finding.facts.at("value"), "torch.backends.cudnn.benchmark, torch.set_float32_matmul_precision");
  auto called = source;
  builder.run().source_facts =
      called.replace(called.find("\"references\":[]"), 15, "\"references\":[\"apply_hardware_optimizations\"]");
  expect_not_found(builder, "optimisation-never-called");
}

}  // namespace
}  // namespace fullwatt::explain
