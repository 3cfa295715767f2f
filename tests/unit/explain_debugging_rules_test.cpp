#include "tests/support/trainings.hpp"
#include <gtest/gtest.h>

// What the rules see of aids for debugging that were left on.
namespace fullwatt::explain {
namespace {

using namespace fullwatt::tests;  // NOLINT: the vocabulary of these tests
using model::Phase;

// As torch 2.11 calls the kernels of its looks for NaN.
constexpr const char* kCompares =
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BinaryFunctorIffbNS0_51_GLOBAL__N__28ce311f_"
    "18_CompareEQKernel_cu_d8008c9616CompareEqFunctorIfEEEESt5arrayIPcLm3EEEEviT0_T1_";
constexpr const char* kAsksForAny =
    "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIbNS0_14func_wrapper_tIbZZZNS0_14or_kernel_cudaERNS_"
    "14TensorIteratorEENKUlvE_clEvENKUlvE10_clEvEUlbbE_EEjbLi4ELi4EEEEEvT1_";

/// A backward pass of eight functions, which are asked for NaN after each: two kernels and a wait.
Script backward(bool is_asked) {
  auto script = forward(2).begin(Phase::backward, 18);
  for (int i = 0; i < 8; ++i) {
    script.launch(18, kConvolution, 2);
    if (!is_asked) continue;
    script.launch(18, kCompares, 0.5).launch(18, kAsksForAny, 0.25).sync(18).library(18, 0.3);
  }
  script.end().begin(Phase::optimizer, 19).launch(19, kFusedAdam, 0.3).end();
  return script.sync(20);
}

TEST(DebuggingRulesTest, LookingForNanCostsItsKernelsAndItsWaits) {
  Said said;
  said.settings = R"("anomaly_detection":true)";
  const auto asked = explain::explain(training(backward(true), said).build());
  const auto plain = explain::explain(training(backward(false), said).build());
  const double cost = asked.step_ms.mean - plain.step_ms.mean;
  EXPECT_GT(cost, 8 * (0.5 + 0.25));
  EXPECT_NEAR(*expect_found(asked, "anomaly-detection-on").gain_ms, cost, 0.1 * asked.step_ms.mean);
  EXPECT_NEAR(*expect_found(plain, "anomaly-detection-on").gain_ms, 0.1 * plain.step_ms.mean,
              0.01 * plain.step_ms.mean);
}

TEST(DebuggingRulesTest, WhatWasLeftOnIsNamed) {
  Said said;
  said.settings = R"("anomaly_detection":true,"sync_debug":1)";
  auto builder = training(healthy_script(), said);
  builder.run().source_facts =
      R"({"files":[{"path":"/home/ada/train.py","calls":[{"name":"torch.autograd.set_detect_anomaly","line":4,"function":""}]}]})";
  EXPECT_EQ(expect_found(builder, "anomaly-detection-on").line, 4);
  expect_found(builder, "sync-debug-on");
  auto profiled = training(healthy_script());
  profiled.fact(
      "profiler",
      R"({"who":"torch.profiler","state":"start","site":{"file":"/home/ada/train.py","line":6,"function":"main"}})");
  EXPECT_EQ(expect_found(profiled, "profiler-left-on").line, 6);
  profiled.fact("profiler", R"({"who":"torch.profiler","state":"stop","site":null})");
  expect_not_found(profiled, "profiler-left-on");
}

TEST(DebuggingRulesTest, StepsThatStaySlowerAfterTheProfilerAreItsResidue) {
  RunBuilder builder;
  say(builder, {});
  auto slower = forward(4.6);
  finish(slower, 3.5);
  builder.plain(healthy_script(), 30);
  const auto fact = [&](const char* state) {
    const auto at = std::to_string(RunBuilder::at_ns(builder.now_ms()));
    builder.process().facts.push_back({"profiler", R"({"kind":"profiler","who":"torch.profiler","state":")" +
                                                       std::string(state) + R"(","at_ns":)" + at + "}"});
  };
  fact("start");
  builder.plain(healthy_script(), 3);
  fact("stop");
  builder.plain(slower, 60).times(slower, 10).causes(slower, 10);
  EXPECT_NEAR(*expect_found(builder, "profiler-residue").gain_ms, 8.8, 1);
}

}  // namespace
}  // namespace fullwatt::explain
