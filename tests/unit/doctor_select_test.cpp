#include <algorithm>

#include "tests/support/machines.hpp"
#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/select.hpp"

namespace fullwatt::doctor {
namespace {

using base::absent;
using base::Absent;
using model::Machine;
using tests::add_intel;
using tests::add_nvidia;
using tests::Gpu;
using tests::kGib;
using tests::machine_with_gpu;
using tests::machine_without_gpu;

const Gpu kFirst{.bdf = "0000:01:00.0", .uuid = "GPU-11111111-aaaa-bbbb-cccc-000000000001"};
const Gpu kSecond{.bdf = "0000:02:00.0", .uuid = "GPU-22222222-aaaa-bbbb-cccc-000000000002"};

/// The UUID of the selected GPU; empty when there is none.
std::string selected(const Machine& machine) {
  const auto selection = select_gpu(machine);
  return selection.selected() == nullptr ? std::string{} : selection.selected()->uuid;
}

Machine two_gpus() {
  auto machine = machine_without_gpu();
  add_nvidia(machine, kFirst);
  add_nvidia(machine, kSecond);
  return machine;
}

/// Why the GPU at this address was not taken.
std::string reason(const Machine& machine, const std::string& bdf) {
  for (const auto& gpu : select_gpu(machine).gpus) {
    if (gpu.bdf == bdf) return base::join(gpu.reasons, "; ");
  }
  return "not listed";
}

TEST(SelectTest, TheDiscreteGpuGoesBeforeTheIntegratedOne) {
  auto machine = machine_without_gpu();
  add_intel(machine);
  add_nvidia(machine,
             {.bdf = "0000:00:00.0", .uuid = "GPU-tegra", .name = "Orin", .cores = 100'000, .discrete = false});
  add_nvidia(machine, {.bdf = "0000:09:00.0", .uuid = "GPU-card", .cores = 100});
  const auto selection = select_gpu(machine);
  ASSERT_NE(selection.selected(), nullptr);
  EXPECT_EQ(selection.selected()->uuid, "GPU-card");
  EXPECT_TRUE(selection.selected()->is_discrete);
  EXPECT_EQ(selection.gpus.size(), 3U);
}

TEST(SelectTest, AnIntegratedNvidiaGpuIsTakenWhenItIsAlone) {
  auto machine = machine_without_gpu();
  add_nvidia(machine, {.uuid = "GPU-tegra", .discrete = false});
  EXPECT_EQ(selected(machine), "GPU-tegra");
}

TEST(SelectTest, AnIntelGpuIsNeverTaken) {
  auto machine = machine_without_gpu();
  add_intel(machine);
  const auto selection = select_gpu(machine);
  EXPECT_EQ(selection.selected(), nullptr);
  ASSERT_EQ(selection.gpus.size(), 1U);
  EXPECT_FALSE(selection.gpus[0].is_available);
  EXPECT_FALSE(selection.gpus[0].reasons.empty());
}

TEST(SelectTest, AFreeGpuGoesBeforeABusyOne) {
  auto machine = two_gpus();
  machine.nvml.devices[0].utilization_gpu = 97;
  machine.nvml.devices[1].cores = 10;
  EXPECT_EQ(selected(machine), kSecond.uuid);
  EXPECT_EQ(reason(machine, kFirst.bdf), "busy with other work");
}

TEST(SelectTest, AGpuWithLittleFreeMemoryIsBusy) {
  auto machine = two_gpus();
  machine.nvml.devices[0].memory_free_bytes = kGib;
  EXPECT_EQ(selected(machine), kSecond.uuid);
}

TEST(SelectTest, ABusyGpuIsBetterThanNone) {
  auto machine = machine_with_gpu();
  machine.nvml.devices[0].utilization_gpu = 100;
  const auto selection = select_gpu(machine);
  ASSERT_NE(selection.selected(), nullptr);
  EXPECT_TRUE(selection.selected()->is_busy);
}

TEST(SelectTest, ABusyDiscreteGpuGoesBeforeAFreeIntegratedOne) {
  auto machine = machine_without_gpu();
  add_nvidia(machine, {.bdf = "0000:00:00.0", .uuid = "GPU-tegra", .discrete = false});
  add_nvidia(machine, kFirst);
  machine.nvml.devices[1].utilization_gpu = 100;
  EXPECT_EQ(selected(machine), kFirst.uuid);
}

TEST(SelectTest, AmongEqualsTheMostCapableIsTaken) {
  auto machine = two_gpus();
  machine.nvml.devices[1].cores = 30'000;
  EXPECT_EQ(selected(machine), kSecond.uuid);
}

TEST(SelectTest, IdenticalGpusAreTakenInPciOrder) {
  EXPECT_EQ(selected(two_gpus()), kFirst.uuid);
}

TEST(SelectTest, WithoutAGpuTheReasonSaysSo) {
  const auto selection = select_gpu(machine_without_gpu());
  EXPECT_TRUE(selection.gpus.empty());
  EXPECT_EQ(selection.selected(), nullptr);
  EXPECT_NE(selection.reason.find("no GPU"), std::string::npos);
  EXPECT_EQ(export_lines(selection), "");
}

TEST(VisibleDevicesTest, AnIndexCountsInPciOrder) {
  auto machine = two_gpus();
  machine.cuda.answers.init = absent(Absent::not_asked);
  machine.cuda.answers.devices.clear();
  machine.host.environment["CUDA_VISIBLE_DEVICES"] = "1";
  EXPECT_EQ(selected(machine), kSecond.uuid);
  EXPECT_EQ(reason(machine, kFirst.bdf), "hidden by CUDA_VISIBLE_DEVICES");
}

TEST(VisibleDevicesTest, AUuidOrItsBeginningNamesTheGpu) {
  for (const auto& setting : {kSecond.uuid, std::string("GPU-2222"), std::string(" GPU-22222222 , 9")}) {
    auto machine = two_gpus();
    machine.cuda.answers.init = absent(Absent::not_asked);
    machine.cuda.answers.devices.clear();
    machine.nvml.devices[1].utilization_gpu = 99;
    machine.host.environment["CUDA_VISIBLE_DEVICES"] = setting;
    EXPECT_EQ(selected(machine), kSecond.uuid) << setting;
  }
}

TEST(VisibleDevicesTest, OfSeveralTheBestIsTaken) {
  auto machine = two_gpus();
  machine.cuda.answers.init = absent(Absent::not_asked);
  machine.cuda.answers.devices.clear();
  machine.nvml.devices[1].utilization_gpu = 99;
  machine.host.environment["CUDA_VISIBLE_DEVICES"] = "GPU-2222,0";
  EXPECT_EQ(selected(machine), kFirst.uuid);
}

TEST(VisibleDevicesTest, AnEmptyOrNegativeSettingHidesEverything) {
  for (const auto* setting : {"", "-1", "none", "7", "-1,0", "GPU-99"}) {
    auto machine = two_gpus();
    machine.cuda.answers.init = absent(Absent::not_asked);
    machine.cuda.answers.devices.clear();
    machine.host.environment["CUDA_VISIBLE_DEVICES"] = setting;
    EXPECT_EQ(selected(machine), "") << "'" << setting << "'";
  }
}

TEST(VisibleDevicesTest, WhereCudaAnsweredItsAnswerCounts) {
  auto machine = two_gpus();
  machine.host.environment["CUDA_VISIBLE_DEVICES"] = "0";  // CUDA's own order may put the second card first
  machine.cuda.answers.devices.erase(machine.cuda.answers.devices.begin());
  EXPECT_EQ(selected(machine), kSecond.uuid);
}

TEST(VisibleDevicesTest, TheProcessAskedAboutHasItsOwnSetting) {
  auto machine = two_gpus();
  machine.cuda.answers.init = absent(Absent::not_asked);
  machine.cuda.answers.devices.clear();
  machine.host.environment["CUDA_VISIBLE_DEVICES"] = "0";
  machine.process.emplace();
  machine.process->environment["CUDA_VISIBLE_DEVICES"] = "1";
  EXPECT_EQ(selected(machine), kSecond.uuid);
}

Machine mig_machine() {
  auto machine = machine_with_gpu();
  auto& device = machine.nvml.devices[0];
  device.mig_enabled = true;
  device.mig_slices = {{"MIG-small", "MIG 1g.18gb", 18 * kGib, 17 * kGib},
                       {"MIG-large", "MIG 3g.71gb", 71 * kGib, 70 * kGib}};
  return machine;
}

TEST(MigTest, SlicesAreOfferedInsteadOfTheWholeGpu) {
  const auto selection = select_gpu(mig_machine());
  ASSERT_EQ(selection.gpus.size(), 2U);
  ASSERT_NE(selection.selected(), nullptr);
  EXPECT_EQ(selection.selected()->uuid, "MIG-large");
  EXPECT_EQ(selection.selected()->memory_total_bytes.value(), 71 * kGib);
}

TEST(MigTest, WithoutAnInstanceTheGpuCannotBeUsed) {
  auto machine = mig_machine();
  machine.nvml.devices[0].mig_slices.clear();
  EXPECT_EQ(selected(machine), "");
  EXPECT_EQ(reason(machine, "0000:01:00.0"), "in MIG mode without an instance");
}

TEST(MigTest, OnlyTheSliceThatTheUserNamedIsTaken) {
  for (const bool cuda : {true, false}) {
    auto machine = mig_machine();
    machine.host.environment["CUDA_VISIBLE_DEVICES"] = "MIG-small";
    if (!cuda) {
      machine.cuda.answers.init = absent(Absent::not_asked);
      machine.cuda.answers.devices.clear();
    }
    EXPECT_EQ(selected(machine), "MIG-small");
  }
}

struct Obstacle {
  const char* name;
  void (*put)(Machine&);
  const char* reason;
};

TEST(ObstacleTest, AGpuThatCannotBeUsedIsNeverTaken) {
  const std::vector<Obstacle> obstacles{
      {"fell off the bus", [](Machine& m) { m.hardware.gpus[0].config_all_ones = true; }, "no longer answers"},
      {"another driver", [](Machine& m) { m.hardware.gpus[0].driver = "nouveau"; }, "held by the driver nouveau"},
      {"excluded", [](Machine& m) { m.hardware.gpus[0].proc_excluded = "Yes"; }, "excluded"},
      {"lost for NVML", [](Machine& m) { m.nvml.devices[0].handle_code = 15; }, "code 15"},
      {"prohibited mode", [](Machine& m) { m.nvml.devices[0].compute_mode = 2; }, "prohibited"},
      {"exclusive mode",
       [](Machine& m) {
         m.nvml.devices[0].compute_mode = 3;
         m.nvml.devices[0].processes = std::vector<model::GpuProcess>{{1, kGib, "compute", "x"}};
       },
       "exclusive"},
      {"not in NVML's list", [](Machine& m) { m.nvml.devices.erase(m.nvml.devices.begin()); }, "NVML does not list it"},
      {"not in CUDA's list", [](Machine& m) { m.cuda.answers.devices.erase(m.cuda.answers.devices.begin()); },
       "CUDA does not list it"},
      {"no context", [](Machine& m) { m.cuda.answers.devices[0].context = 46; }, "test kernel"},
      {"no kernel", [](Machine& m) { m.cuda.answers.devices[0].launch = 719; }, "test kernel"},
      {"PyTorch without its kernels", [](Machine& m) { m.nvml.devices[0].compute_capability = "6.1"; }, "6.1"},
  };
  for (const auto& obstacle : obstacles) {
    auto machine = two_gpus();
    obstacle.put(machine);
    EXPECT_EQ(selected(machine), kSecond.uuid) << obstacle.name;
    EXPECT_NE(reason(machine, kFirst.bdf).find(obstacle.reason), std::string::npos) << obstacle.name;
  }
}

TEST(ObstacleTest, ExclusiveModeWithoutAnotherProcessIsFine) {
  auto machine = machine_with_gpu();
  machine.nvml.devices[0].compute_mode = 3;
  EXPECT_NE(selected(machine), "");
}

TEST(ObstacleTest, WhenNoneCanBeUsedTheDoctorIsNamed) {
  auto machine = machine_with_gpu();
  machine.nvml.devices[0].compute_mode = 2;
  const auto selection = select_gpu(machine);
  EXPECT_EQ(selection.selected(), nullptr);
  EXPECT_NE(selection.reason.find("fullwatt doctor"), std::string::npos);
}

TEST(ObstacleTest, WithoutCudaNoGpuIsTaken) {
  for (const auto& init : {base::Reading<int>(999), base::Reading<int>(absent(Absent::timed_out)),
                           base::Reading<int>(absent(Absent::failed)), base::Reading<int>(absent(Absent::not_there))}) {
    auto machine = machine_with_gpu();
    machine.cuda.answers.init = init;
    machine.cuda.answers.devices.clear();
    EXPECT_EQ(selected(machine), "");
  }
}

TEST(ObstacleTest, ASleepingGpuMayBeTaken) {
  auto machine = machine_with_gpu();
  machine.hardware.gpus[0].runtime_status = "suspended";
  machine.nvml = {};
  machine.nvml.init = absent(Absent::asleep);
  machine.cuda.answers = {};
  machine.cuda.answers.init = absent(Absent::asleep);
  EXPECT_NE(selected(machine), "");
  EXPECT_NE(reason(machine, "0000:01:00.0").find("asleep"), std::string::npos);
}

TEST(ExportTest, TheShellGetsTheUuidAndTheOrder) {
  EXPECT_EQ(export_lines(select_gpu(machine_with_gpu())),
            "export CUDA_DEVICE_ORDER=PCI_BUS_ID\n"
            "export CUDA_VISIBLE_DEVICES=GPU-11111111-aaaa-bbbb-cccc-000000000001\n");
}

TEST(ExportTest, WhatIsNoUuidNeverReachesTheShell) {
  for (const std::string uuid : {"x; reboot #", "GPU-1; reboot", "GPU-$(reboot)", "GPU-1\nreboot", "", "reboot"}) {
    auto machine = machine_without_gpu();
    add_nvidia(machine, {.uuid = uuid});
    EXPECT_EQ(export_lines(select_gpu(machine)), "") << uuid;
  }
  auto slice = mig_machine();
  slice.nvml.devices[0].mig_slices = {{"MIG-GPU-1111/1/0", "old form", kGib, kGib}};
  EXPECT_TRUE(export_lines(select_gpu(slice)).ends_with("CUDA_VISIBLE_DEVICES=MIG-GPU-1111/1/0\n"));
}

TEST(SelectTest, TheOrderOfTheListsDoesNotMatter) {
  auto machine = two_gpus();
  add_intel(machine);
  const auto before = select_gpu(machine);
  std::ranges::reverse(machine.hardware.gpus);
  std::ranges::reverse(machine.gpus);
  std::ranges::reverse(machine.nvml.devices);
  std::ranges::reverse(machine.cuda.answers.devices);
  const auto after = select_gpu(machine);
  ASSERT_EQ(before.gpus.size(), after.gpus.size());
  for (std::size_t i = 0; i < before.gpus.size(); ++i) EXPECT_EQ(before.gpus[i].bdf, after.gpus[i].bdf);
}

}  // namespace
}  // namespace fullwatt::doctor
