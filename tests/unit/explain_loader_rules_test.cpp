// Why a training waits for its data.

#include "tests/support/trainings.hpp"
#include <gtest/gtest.h>

namespace fullwatt::explain {
namespace {

using namespace fullwatt::tests;  // NOLINT: the vocabulary of these tests
using model::Phase;

TEST(LoaderRulesTest, NoWorkersIsTheReasonWhenThereAreNone) {
  auto script = Script().data(12, 25).launches(8, 15, kConvolution, 2);
  Said said;
  said.loader = R"("batch_size":64,"num_workers":0)";
  const auto finding = expect_found(training(finish(script, 1), said), "loader-workers-zero");
  EXPECT_EQ(finding.line, 9);
  EXPECT_NEAR(*finding.charged_ms, 25, 2);
  EXPECT_GT(*finding.gain_ms, 15);
}

TEST(LoaderRulesTest, BatchesThatAreQuicklyMadeNeedNoWorkers) {
  auto script = Script().data(12, 0.25).launches(8, 15, kConvolution, 0.5);
  Said said;
  said.loader = R"("batch_size":64,"num_workers":0)";
  expect_not_found(training(finish(script, 0.2), said), "loader-workers-zero");
}

/// Batches of `workers` processes, each `batch_ms` long; `cpu` of it computing, `collate` of it collating.
void add_workers(RunBuilder& builder, int workers, double batch_ms, double cpu, double collate = 0.1,
                 std::uint32_t read_kib = 0) {
  for (int worker = 0; worker < workers; ++worker) {
    model::TrainingProcess process;
    process.pid = 5000 + worker;
    process.role = model::TrainingProcess::Role::worker;
    process.facts.push_back(
        {"process", R"({"kind":"process","pid":)" + std::to_string(process.pid) + R"(,"parent":4711})"});
    for (double at = 0; at + batch_ms < builder.now_ms(); at += batch_ms) {
      model::Fetch fetch;
      fetch.worker = worker;
      fetch.start_ns = RunBuilder::at_ns(at);
      fetch.end_ns = RunBuilder::at_ns(at + batch_ms);
      fetch.cpu_ns = static_cast<std::uint64_t>(batch_ms * cpu * 1e6);
      fetch.collate_ns = static_cast<std::uint64_t>(batch_ms * collate * 1e6);
      fetch.samples = 64;
      fetch.read_kib = read_kib;
      process.fetches.push_back(fetch);
    }
    builder.run().processes.push_back(process);
  }
}

/// The training makes its batches itself, as it has no workers.
RunBuilder loads_itself(double batch_ms, double cpu) {
  auto script = Script().data(12, batch_ms).launches(8, 15, kConvolution, 2);
  Said said;
  said.loader = R"("batch_size":64,"num_workers":0)";
  auto builder = training(finish(script, 1), said);
  add_workers(builder, 1, batch_ms, cpu);
  return builder;
}

void set_load(RunBuilder& builder, double busy, double training, double throttled = 0, double iowait = 0) {
  for (auto& sample : builder.run().host_samples) {
    sample.cpus_busy = busy;
    sample.cpus_training = training;
    sample.throttled = throttled;
    sample.iowait = iowait;
  }
}

void set_cpus(RunBuilder& builder, int count) {
  auto& system = builder.run().machine->host.system;
  system.online_cpus = count;
  system.cpus = "0-" + std::to_string(count - 1);
}

TEST(LoaderRulesTest, WorkersFitTheCpusThatAreThereAndWaitingTakesNone) {
  const auto expected = [](RunBuilder builder) {
    return std::stoi(expect_found(builder, "loader-workers-zero").facts.at("expected"));
  };
  const auto computing = loads_itself(60, 1);
  EXPECT_GT(expected(computing), 3);
  auto on_two = computing;
  set_cpus(on_two, 2);
  EXPECT_EQ(expected(on_two), 2) << "the training waits while batches are made";
  set_load(on_two, 1.05, 1);
  EXPECT_EQ(expected(on_two), 2) << "what the system itself takes is little";
  auto unknown = computing;
  unknown.run().machine.reset();
  EXPECT_EQ(expected(unknown), expected(computing));
  auto waiting = loads_itself(60, 0.05);
  set_cpus(waiting, 2);
  set_load(waiting, 0.2, 0.2);
  EXPECT_GT(expected(waiting), 3);
  EXPECT_GT(*expect_found(waiting, "loader-workers-zero").gain_ms, 50);
}

TEST(LoaderRulesTest, WhereTheOnlyCpuMakesTheBatchesTheirWorkIsTooMuchForIt) {
  for (const double batch_ms : {60.0, 3.0}) {
    auto builder = loads_itself(batch_ms, 1);
    set_cpus(builder, 1);
    const auto explanation = explain(builder.build());
    EXPECT_EQ(explanation.find("loader-workers-zero"), nullptr);
    EXPECT_EQ(explanation.find("loader-cpu-bound") != nullptr, batch_ms == 60) << batch_ms;
  }
  auto waiting = loads_itself(60, 0.05);
  set_cpus(waiting, 1);
  set_load(waiting, 0.2, 0.2);
  expect_found(waiting, "loader-workers-zero");
}

/// A training on a CPU: a wait for the loader, and computing.
RunBuilder trains_on_cpu(int cpus, int workers, double wait_ms = 40, double computing_ms = 10) {
  RunBuilder builder;
  builder.without_gpu_records().samples_per_step(64);
  builder.fact("model", R"({"id":1,"class":"Net","parameters":1000,"devices":{"cpu":1000}})");
  builder.fact(
      "loader",
      R"({"id":1,"site":{"file":"/home/ada/train.py","line":9,"function":"main"},"batch_size":64,"num_workers":)" +
          std::to_string(workers) + "}");
  builder.train(Script().data(12, wait_ms).begin(model::Phase::backward, 18).library(18, computing_ms).end());
  builder.run().machine = machine_without_gpu();
  set_cpus(builder, cpus);
  return builder;
}

TEST(LoaderRulesTest, OnTwoCpusWorkersGiveHalfAndTheWorkItselfIsNamedWhereTheyGiveLittle) {
  auto builder = trains_on_cpu(2, 0);
  add_workers(builder, 1, 40, 1);
  const auto finding = expect_found(builder, "loader-workers-zero");
  EXPECT_NEAR(*finding.gain_ms, 20, 3) << "60 ms of computing on two CPUs";
  EXPECT_EQ(explain(builder.build()).find("loader-cpu-bound"), nullptr);
  model::HostSample crowded;
  for (int i = 0; i < 40; ++i) {
    crowded.at_ns = RunBuilder::at_ns(i * 100.0);
    crowded.cpus_busy = 2;
    crowded.cpus_training = 1;
    builder.run().host_samples.push_back(crowded);
  }
  EXPECT_EQ(explain(builder.build()).find("loader-workers-zero"), nullptr) << "others have the second CPU";
  expect_found(builder, "loader-cpu-bound");
}

TEST(LoaderRulesTest, WorkersThatAFullCpuKeepsWaitingALittleAreNoFinding) {
  auto builder = trains_on_cpu(2, 1, 2.7, 47);
  add_workers(builder, 1, 10, 1, 0.7);
  for (const auto* id : {"loader-collate-slow", "loader-hand-over", "loader-cpu-bound", "loader-workers-too-few"})
    expect_not_found(builder, id);
}

TEST(LoaderRulesTest, CollatingInTheTrainingIsNamedBesideTheMissingWorkers) {
  auto builder = trains_on_cpu(2, 0);
  add_workers(builder, 1, 40, 1, 0.9);
  expect_found(builder, "loader-workers-zero");
  EXPECT_NEAR(*expect_found(builder, "loader-collate-slow").charged_ms, 40, 2);
}

TEST(LoaderRulesTest, ChoosingTheSamplesIsToldApartFromMakingThem) {
  auto builder = trains_on_cpu(8, 0);
  add_workers(builder, 1, 4, 1);
  EXPECT_NEAR(*expect_found(builder, "loader-sampler-slow").gain_ms, 36, 3);
  EXPECT_EQ(explain(builder.build()).find("loader-workers-zero"), nullptr);
  auto making = trains_on_cpu(8, 0);
  add_workers(making, 1, 38, 1);
  expect_not_found(making, "loader-sampler-slow");
}

/// 40 ms of waiting in a step of about 65 ms.
RunBuilder starved(const std::string& loader = R"("batch_size":64,"num_workers":2,"prefetch_factor":2)") {
  auto script = Script().data(12, 40).launches(8, 15, kConvolution, 2);
  Said said;
  said.loader = loader;
  return training(finish(script, 1), said);
}

TEST(LoaderRulesTest, SamplesThatTheLoaderPutsOnTheGpuAreNoWorkForWorkers) {
  auto builder = starved(R"("batch_size":64,"num_workers":0)");
  add_workers(builder, 1, 40, 1, 0.9);
  expect_found(builder, "loader-workers-zero");
  builder.fact("batch", R"({"device":"cuda:0"})");
  EXPECT_NEAR(*expect_found(builder, "loader-samples-on-gpu").gain_ms, 40, 4);
  for (const auto* id : {"loader-workers-zero", "loader-collate-slow", "loader-cpu-bound"})
    expect_not_found(builder, id);
}

/// Said when it had been begun so often.
void begun(RunBuilder& builder, int count, int ended, double at_ms) {
  builder.process().facts.push_back({"iterators", R"({"kind":"iterators","loader":1,"begun":)" + std::to_string(count) +
                                                      R"(,"ended":)" + std::to_string(ended) + R"(,"at_ns":)" +
                                                      std::to_string(RunBuilder::at_ns(at_ms)) + "}"});
}

TEST(LoaderRulesTest, ALoaderThatIsBegunForEachBatchIsNotOneOfShortEpochs) {
  const auto with = [](int ended_before, int ended) {
    auto builder = starved(R"("batch_size":64,"num_workers":2,"persistent_workers":false)");
    add_workers(builder, 2, 4, 0.97);
    begun(builder, 8, ended_before, 0);
    begun(builder, 16, ended, 8 * 65);
    return builder;
  };
  const auto finding = expect_found(with(0, 0), "loader-begun-each-step");
  EXPECT_NEAR(*finding.charged_ms, 40, 4);
  EXPECT_EQ(explain(with(0, 0).build()).find("loader-hand-over"), nullptr);
  expect_not_found(with(7, 15), "loader-begun-each-step");
}

TEST(LoaderRulesTest, BusyWorkersOnAnIdleMachineAreTooFew) {
  auto builder = starved();
  add_workers(builder, 2, 130, 0.97);
  set_load(builder, 3, 3);
  const auto finding = expect_found(builder, "loader-workers-too-few");
  EXPECT_NEAR(*finding.charged_ms, 40, 3);
  EXPECT_GT(*finding.gain_ms, 20);
  EXPECT_GT(std::stoi(finding.facts.at("expected")), 4);
  EXPECT_LE(std::stoi(finding.facts.at("expected")), 15);
}

TEST(LoaderRulesTest, WorkersThatTheSampleCacheStandsInForAreNoReason) {
  const auto with = [](const char* state) {
    auto builder = starved();
    add_workers(builder, 2, 130, 0.97);
    set_load(builder, 3, 3);
    return builder.fact("fix", object(R"("id":"sample-cache","state":)" + std::string(state)));
  };
  expect_not_found(with(R"("in-force")"), "loader-workers-too-few");
  expect_found(with(R"("refused")"), "loader-workers-too-few");
}

TEST(LoaderRulesTest, BusyWorkersOnAFullMachineAreCpuBound) {
  auto builder = starved(R"("batch_size":64,"num_workers":12)");
  add_workers(builder, 12, 780, 0.97);
  set_load(builder, 16, 15.8);
  const auto finding = expect_found(builder, "loader-cpu-bound");
  EXPECT_EQ(explain(builder.build()).find("loader-workers-too-few"), nullptr);
  EXPECT_EQ(finding.facts.at("cpus"), "16");
}

TEST(LoaderRulesTest, WorkersThatReadAndDoNotComputeWaitForTheDisk) {
  auto builder = starved();
  add_workers(builder, 2, 130, 0.2, 0.05, 40'000);
  set_load(builder, 2, 2, 0, 1.5);
  EXPECT_EQ(expect_found(builder, "loader-disk-bound").facts.at("count"), "41");
}

TEST(LoaderRulesTest, CollatingMostOfTheTimeIsNamed) {
  auto builder = starved(R"("batch_size":64,"num_workers":2,"collate":"pad_batch")");
  add_workers(builder, 2, 130, 0.97, 0.7);
  set_load(builder, 3, 3);
  EXPECT_EQ(expect_found(builder, "loader-collate-slow").facts.at("name"), "pad_batch");
}

TEST(LoaderRulesTest, WhatPaddingTakesOfAStepIsTold) {
  auto builder = starved(R"("batch_size":64,"num_workers":2,"collate":"pad_batch")");
  add_workers(builder, 2, 40, 0.97, 0.25);
  EXPECT_FALSE(explain(builder.build()).padding_ms) << "all batches may be alike";
  auto& facts = builder.run().processes.back().facts;
  facts.push_back({"padding", R"({"kind":"padding","function":"another"})"});
  EXPECT_FALSE(explain(builder.build()).padding_ms);
  facts.push_back({"padding", R"({"kind":"padding","function":"pad_batch"})"});
  const auto padding = explain(builder.build()).padding_ms;
  ASSERT_TRUE(padding);
  EXPECT_NEAR(*padding, 10, 1);
  for (auto& process : builder.run().processes) {
    for (auto& fetch : process.fetches) fetch.cpu_ns /= 2;
  }
  set_cpus(builder, 2);
  set_load(builder, 2, 2);
  EXPECT_NEAR(*explain(builder.build()).padding_ms, 5, 1) << "where workers leave it a CPU";
}

TEST(LoaderRulesTest, IdleWorkersAndAWaitInEveryStepAreTheHandOverNotTheCollating) {
  auto builder = starved(R"("batch_size":64,"num_workers":2,"collate":"pad_batch")");
  add_workers(builder, 2, 4, 0.97, 0.7);
  for (auto& process : builder.run().processes) {  // a batch in each step, not one after the other
    std::size_t number = 0;
    std::erase_if(process.fetches, [&](const model::Fetch&) { return number++ % 16 != 0; });
  }
  set_load(builder, 2, 1);
  const auto finding = expect_found(builder, "loader-hand-over");
  EXPECT_NEAR(*finding.charged_ms, 40, 2);
  EXPECT_EQ(explain(builder.build()).find("loader-collate-slow"), nullptr);
}

TEST(LoaderRulesTest, MoreWorkersThanCpusHinderEachOther) {
  auto builder = starved(R"("batch_size":64,"num_workers":28)");
  add_workers(builder, 28, 1800, 0.5);
  set_load(builder, 16, 15.9);
  const auto finding = expect_found(builder, "loader-workers-too-many");
  EXPECT_EQ(finding.facts.at("count"), "28");
  EXPECT_EQ(finding.facts.at("limit"), "16");
}

TEST(LoaderRulesTest, AQuotaThatStopsTheWorkersGoesBeforeTheirNumber) {
  auto builder = starved();
  builder.run().machine->host.cpu_quota = 2.0;
  add_workers(builder, 2, 130, 0.6);
  set_load(builder, 2, 2, 0.4);
  EXPECT_EQ(expect_found(builder, "cpu-quota-starves-loader").facts.at("limit"), "2");
}

TEST(LoaderRulesTest, WorkersThatAreFastOnTheWholeDeliverInBursts) {
  auto builder = starved(R"("batch_size":64,"num_workers":8,"prefetch_factor":2)");
  add_workers(builder, 8, 100, 0.9);
  for (auto& process : builder.run().processes) {
    for (std::size_t i = 0; i < process.fetches.size(); i += 9) process.fetches[i].end_ns += 400'000'000;
  }
  std::size_t wait = 0;
  for (auto& span : builder.process().phases) {  // three batches of four are there when they are needed
    if (span.phase == Phase::data && wait++ % 4 != 0) span.end_ns = span.start_ns + 100'000;
  }
  set_load(builder, 8, 7);
  EXPECT_EQ(expect_found(builder, "loader-prefetch-small").facts.at("value"), "2");
}

TEST(LoaderRulesTest, OneSlowWorkerHoldsUpTheOthers) {
  auto builder = starved(R"("batch_size":64,"num_workers":8)");
  add_workers(builder, 8, 100, 0.9);
  for (auto& fetch : builder.run().processes[3].fetches) fetch.end_ns += 250'000'000;
  set_load(builder, 8, 7);
  EXPECT_EQ(expect_found(builder, "loader-worker-imbalance").facts.at("value"), "3.5");
}

/// Gives when it began, in nanoseconds.
std::uint64_t begin_epoch(RunBuilder& builder, int batches) {
  const auto start = RunBuilder::at_ns(builder.now_ms()) + 1000;
  builder.process().facts.push_back({"epoch", R"({"kind":"epoch","loader":1,"batches":)" + std::to_string(batches) +
                                                  R"(,"at_ns":)" + std::to_string(start) + "}"});
  return start;
}

TEST(LoaderRulesTest, WorkersThatStartAnewEachEpochArePriced) {
  Said said;
  said.loader = R"("batch_size":64,"num_workers":4,"persistent_workers":false)";
  RunBuilder builder;
  say(builder, said);
  auto first = Script().data(12, 2000).launches(8, 15, kConvolution, 4);
  finish(first);
  for (int epoch = 0; epoch < 4; ++epoch) {
    begin_epoch(builder, 41);
    builder.plain(first, 1).plain(healthy_script(), 20);
    if (epoch == 1) builder.times(healthy_script(), 10).causes(healthy_script(), 10);
    builder.plain(healthy_script(), 20);
  }
  const auto finding = expect_found(builder, "loader-workers-respawned");
  EXPECT_NEAR(*finding.gain_ms, 2000 / 48.0, 10);
}

TEST(LoaderRulesTest, FilesThatAreBatchesAreNoticed) {
  auto builder = starved(R"("batch_size":1,"num_workers":2)");
  add_workers(builder, 2, 130, 0.97);
  set_load(builder, 3, 3);
  EXPECT_EQ(expect_found(builder, "loader-one-file-per-batch").facts.at("samples"), "64");
}

TEST(LoaderRulesTest, AColdDataSetIsToldApartByItsFirstEpoch) {
  Said said;
  RunBuilder builder;
  say(builder, said);
  auto cold = Script().data(12, 60).launches(8, 15, kConvolution, 4);
  finish(cold);
  for (int epoch = 0; epoch < 3; ++epoch) {
    const auto start = begin_epoch(builder, 20);
    model::HostSample sample;
    sample.at_ns = start + 1000;
    sample.disk_read_bytes = epoch == 0 ? 4'000'000'000 : 0;
    builder.run().host_samples.push_back(sample);
    builder.plain(epoch == 0 ? cold : healthy_script(), 20);
  }
  builder.times(healthy_script(), 10).causes(healthy_script(), 10);
  EXPECT_EQ(expect_found(builder, "data-set-cold").severity, model::Severity::info);
}

}  // namespace
}  // namespace fullwatt::explain
