// P4: whatever was measured, the device that is chosen is the right one: never a GPU that was not faster in all rounds,
// and very small work, which is faster on a CPU, is said to be.

#include "fullwatt/api/device_decision.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace fullwatt::api {
namespace {

/// From a sample in a day to a billion a second.
Speed any_speed() {
  const auto one = [] { return std::exp2(*rc::gen::inRange(-16000, 30000) / 1000.0); };
  const auto spread = [] { return 1 + *rc::gen::inRange(0, 2000) / 1000.0; };
  const double median = one();
  return {median, median / spread(), median * spread()};
}

/// A measurement that went wrong.
Speed any_nonsense() {
  const double wrong = *rc::gen::element(0.0, -1.0, std::numeric_limits<double>::infinity(),
                                         -std::numeric_limits<double>::infinity(), std::nan(""), 1e300, 1e-300);
  auto speed = any_speed();
  const std::array<double*, 3> figures{&speed.median, &speed.lowest, &speed.highest};
  *figures[*rc::gen::inRange<std::size_t>(0, 3)] = wrong;
  return speed;
}

RC_GTEST_PROP(DeviceDecisionTest, TheGpuIsChosenWhereAllItsRoundsWereFasterAndNowhereElse, ()) {
  const auto cpu = any_speed();
  const auto gpu = any_speed();
  const auto decision = decide_device(cpu, gpu);
  RC_ASSERT((decision.device == "cuda") == (gpu.lowest > cpu.highest));
  RC_ASSERT((decision.faster == FasterDevice::gpu) == (gpu.lowest > cpu.highest));
  RC_ASSERT((decision.faster == FasterDevice::cpu) == (cpu.lowest > gpu.highest));
}

RC_GTEST_PROP(DeviceDecisionTest, TheImprovementIsTheRatioAndLiesWithinItsRange, ()) {
  const auto cpu = any_speed();
  const auto gpu = any_speed();
  const auto decision = decide_device(cpu, gpu);
  RC_ASSERT(decision.improvement.has_value());
  RC_ASSERT(std::abs(*decision.improvement * cpu.median - gpu.median) <= 1e-9 * gpu.median);
  RC_ASSERT(*decision.improvement_least <= *decision.improvement);
  RC_ASSERT(*decision.improvement <= *decision.improvement_most);
  if (decision.reaches_goal) RC_ASSERT(*decision.improvement >= kImprovementGoal);
  if (decision.reaches_goal) RC_ASSERT(decision.device == "cuda");
}

RC_GTEST_PROP(DeviceDecisionTest, ExchangedMeasurementsExchangeTheVerdict, ()) {
  const auto one = any_speed();
  const auto other = any_speed();
  const auto decision = decide_device(one, other);
  const auto exchanged = decide_device(other, one);
  RC_ASSERT((decision.faster == FasterDevice::gpu) == (exchanged.faster == FasterDevice::cpu));
  RC_ASSERT((decision.faster == FasterDevice::neither) == (exchanged.faster == FasterDevice::neither));
  RC_ASSERT(std::abs(*decision.improvement * *exchanged.improvement - 1) < 1e-9);
}

RC_GTEST_PROP(DeviceDecisionTest, AFasterGpuIsNeverChosenLess, ()) {
  const auto cpu = any_speed();
  const auto gpu = any_speed();
  const double more = 1 + *rc::gen::inRange(0, 10000) / 1000.0;
  const Speed faster{gpu.median * more, gpu.lowest * more, gpu.highest * more};
  if (decide_device(cpu, gpu).device == "cuda") RC_ASSERT(decide_device(cpu, faster).device == "cuda");
  if (decide_device(cpu, gpu).reaches_goal) RC_ASSERT(decide_device(cpu, faster).reaches_goal);
}

RC_GTEST_PROP(DeviceDecisionTest, WhatIsNoMeasurementIsNotCompared, ()) {
  const auto good = any_speed();
  const auto bad = any_nonsense();
  for (const auto& decision : {decide_device(bad, good), decide_device(good, bad), decide_device(bad, bad)}) {
    RC_ASSERT(decision.faster == FasterDevice::unknown);
    RC_ASSERT(!decision.improvement && !decision.reaches_goal);
    RC_ASSERT(!decision.conclusion.empty());
  }
  RC_ASSERT(decide_device(bad, good).device == "cuda");
  RC_ASSERT(decide_device(good, bad).device == "cpu");
  RC_ASSERT(decide_device(good, std::nullopt).device == "cpu");
}

TEST(DeviceDecisionTest, SmallWorkIsSaidToBelongOnTheCpu) {
  const auto decision = decide_device({30000, 29000, 31000}, Speed{10000, 9800, 10100});
  EXPECT_EQ(decision.device, "cpu");
  EXPECT_EQ(decision.conclusion,
            "The CPU is 3 times as fast as the GPU (2.87 to 3.16): a step is too little work for a GPU. Train on the "
            "CPU, or try larger batches.");
}

RC_GTEST_PROP(DeviceDecisionTest, TheSelectedGpuIsFoundInTorchsOrderWhereTorchSeesIt, ()) {
  auto all = *rc::gen::unique<std::vector<std::string>>(
      rc::gen::map(rc::gen::inRange(0, 256), [](int bus) { return "0000:" + std::to_string(bus) + ":00.0"; }));
  RC_PRE(!all.empty());
  const auto selected = *rc::gen::inRange<std::size_t>(0, all.size());
  const auto address = all[selected];
  RC_ASSERT(index_of_gpu(address, all) == selected);
  all.erase(all.begin() + static_cast<std::ptrdiff_t>(selected));
  RC_ASSERT(index_of_gpu(address, all) == 0U);
  RC_ASSERT(index_of_gpu("", all) == 0U);
}

}  // namespace
}  // namespace fullwatt::api
