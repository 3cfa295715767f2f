#include <limits>
#include <string>

#include "tests/support/machines.hpp"
#include <gtest/gtest.h>

#include "fullwatt/model/finding.hpp"
#include "fullwatt/model/json.hpp"
#include "fullwatt/model/selection.hpp"

namespace fullwatt::model {
namespace {

using base::absent;
using base::Absent;
using tests::kGib;

Json parse(const std::string& text) {
  return Json::parse(text);
}

/// A machine with something in every struct, and every kind of absence.
Machine full_machine() {
  auto machine = tests::machine_with_gpu();
  tests::add_intel(machine);
  auto& pci = machine.hardware.gpus.front();
  pci.bars = {{0x80000000, 0x83ffffff, 0x40200}, {}};
  pci.bridges = {"0000:00:01.0"};
  pci.link_gts = 16.5;
  pci.numa_node = absent(Absent::unsupported);
  machine.hardware.power_supplies = {{"ADP1", "Mains", true},
                                     {"BAT0", "Battery", absent(Absent::not_there, "gone", 2)}};
  machine.hardware.removal_rules = {{"/etc/udev/rules.d/50.rules", 3, "ATTR{remove}=\"1\""}};
  machine.driver.params = {{"ModifyDeviceFiles", "1"}};
  machine.driver.services = {{"nvidia-powerd", true, false, "580", {"line"}}};
  machine.driver.kernel_log = absent(Absent::no_permission, "may not be read");
  machine.driver.container.cdi_versions = {{"/etc/cdi/nvidia.yaml", 0, "535.161.07"}};
  machine.driver.gsp_firmware = std::vector<std::string>{"580.95.05"};
  auto& device = machine.nvml.devices.front();
  device.clock_events = std::numeric_limits<std::uint64_t>::max();
  device.power_mw = absent(Absent::failed, "GPU is lost", 15);
  device.mig_slices = {{"MIG-1", "MIG 1g.18gb", 18 * kGib, absent(Absent::asleep)}};
  device.processes =
      std::vector<GpuProcess>{{42, kGib, "compute", "python"}, {43, absent(Absent::not_asked), "graphics", ""}};
  machine.cuda.answers.devices.front().launch_ms = 12.25;
  machine.cuda.toolkits = {{"/usr/local/cuda-13.0", "13.0.1", true}};
  machine.cuda.jit_cache_writable = absent(Absent::timed_out);
  machine.torch.installs.push_back(
      {"/site", "/python", "2.11", "13.0", true, "", "0.26", {"onnxruntime"}, "", "cuda", {"libnccl.so.2"}});
  machine.torch.kernels = {{"/kernel.json", "/python"}};
  machine.host.environment = {{"CUDA_VISIBLE_DEVICES", ""}, {"名字", "值"}};
  machine.host.system.service_logs = {{"nvidia-powerd", {"a", "b"}}};
  machine.host.system.processes = {{1, "init", "S", {"/dev/nvidia0"}}};
  machine.process.emplace();
  machine.process->command = {"python", "train.py"};
  machine.process->cpus = "0-3";
  machine.log = {"line one", "line two"};
  machine.problems = {{"nvml", "no answer within 10 s"}};
  return machine;
}

TEST(ModelJsonTest, AFullMachineComesBackAsItWas) {
  const auto json = to_json(full_machine());
  const auto again = from_json<Machine>(parse(dump(json)));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(dump(to_json(*again), 1), dump(json, 1));
}

TEST(ModelJsonTest, AnEmptyMachineComesBackAsItWas) {
  const auto json = to_json(Machine{});
  const auto again = from_json<Machine>(json);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_FALSE(again->process);
  EXPECT_FALSE(again->log);
  EXPECT_EQ(to_json(*again), json);
}

TEST(ModelJsonTest, AbsenceKeepsReasonCodeAndText) {
  for (const auto reason : {Absent::not_asked, Absent::not_there, Absent::unsupported, Absent::no_permission,
                            Absent::asleep, Absent::timed_out, Absent::failed}) {
    const Reading<int> reading = absent(reason, "why", 7);
    const auto again = from_json<Reading<int>>(to_json(reading));
    ASSERT_TRUE(again);
    ASSERT_FALSE(*again);
    EXPECT_EQ(again->error(), reading.error()) << base::to_string(reason);
  }
}

TEST(ModelJsonTest, AnUnknownReasonOfAbsenceReadsAsFailed) {
  const auto reading = from_json<Reading<int>>(parse(R"({"absent": "eaten by the dog"})"));
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->error().reason, Absent::failed);
}

TEST(ModelJsonTest, FieldsThatAreLeftOutKeepTheirDefault) {
  const auto device = from_json<NvmlDevice>(parse(R"({"index": 3})"));
  ASSERT_TRUE(device);
  EXPECT_EQ(device->index, 3);
  EXPECT_EQ(device->power_mw.error().reason, Absent::not_asked);
}

/// What is said of a document that cannot be read.
template <class T>
std::string complaint(const std::string& text) {
  const auto value = from_json<T>(parse(text));
  return value ? "nothing" : value.error().message;
}

TEST(ModelJsonTest, AnUnknownFieldIsNamedWithItsPlace) {
  EXPECT_EQ(complaint<Machine>(R"({"nvml": {"devices": [{"colour": 1}]}})"), "nvml.devices[0].colour: no such field");
  EXPECT_EQ(complaint<Machine>(R"({"colour": 1})"), "colour: no such field");
}

TEST(ModelJsonTest, AWrongTypeIsNamedWithItsPlace) {
  EXPECT_EQ(complaint<Machine>(R"({"driver": {"kernel": 6}})"), "driver.kernel: expected text, found number");
  EXPECT_EQ(complaint<Machine>(R"({"driver": {"loaded": "yes"}})"),
            "driver.loaded: expected true or false, found string");
  EXPECT_EQ(complaint<Machine>(R"({"gpus": {}})"), "gpus: expected a list, found object");
  EXPECT_EQ(complaint<Machine>(R"({"host": {"environment": []}})"),
            "host.environment: expected a mapping, found array");
  EXPECT_EQ(complaint<Machine>(R"([1])"), "the document: expected a mapping, found array");
  EXPECT_EQ(complaint<Machine>("null"), "the document: expected a mapping, found null");
  EXPECT_EQ(complaint<Reading<int>>("1.5"), "the document: expected a whole number, found number");
  EXPECT_EQ(complaint<Reading<double>>(R"("fast")"), "the document: expected a number, found string");
  EXPECT_EQ(complaint<Reading<int>>(R"({"absent": 5})"), ".absent: expected text, found number");
}

TEST(ModelJsonTest, ANumberOutOfRangeIsRefused) {
  EXPECT_TRUE(complaint<NvmlDevice>(R"({"index": 2147483648})").ends_with("the number 2147483648 is out of range"));
  EXPECT_TRUE(complaint<NvmlDevice>(R"({"index": -2147483649})").ends_with("is out of range"));
  EXPECT_TRUE(complaint<CudaDevice>(R"({"memory_total_bytes": -1})").ends_with("is out of range"));
  EXPECT_EQ(complaint<CudaDevice>(R"({"memory_total_bytes": 18446744073709551616})"),
            "memory_total_bytes: expected a whole number, found number");
  EXPECT_EQ(complaint<CudaDevice>(R"({"memory_total_bytes": 18446744073709551615})"), "nothing");
}

TEST(ModelJsonTest, NotANumberIsWrittenAsNull) {
  EXPECT_EQ(dump(to_json(std::numeric_limits<double>::quiet_NaN())), "null");
  EXPECT_EQ(dump(to_json(std::numeric_limits<double>::infinity())), "null");
  EXPECT_EQ(dump(to_json(Reading<double>(std::numeric_limits<double>::quiet_NaN()))), "null");
}

TEST(ModelJsonTest, BrokenUtf8IsReplacedWhenWritten) {
  const std::map<std::string, std::string> hostile{{"na\xffme", "va\xc3lue\x1b[31m"}};
  const auto text = dump(to_json(hostile));
  EXPECT_EQ(text, "{\"na\uFFFDme\":\"va\uFFFDlue\\u001b[31m\"}");
  EXPECT_TRUE(Json::accept(text));
}

TEST(ModelJsonTest, EnumerationsAreWrittenByName) {
  Finding finding;
  finding.layer = Layer::pytorch;
  finding.severity = Severity::warning;
  finding.confidence = Confidence::possible;
  const auto json = to_json(finding);
  EXPECT_EQ(json["layer"], "pytorch");
  EXPECT_EQ(json["severity"], "warning");
  EXPECT_EQ(json["confidence"], "possible");
  EXPECT_EQ(json["charged_ms"], nullptr);
  EXPECT_EQ(to_json(LayerStatus{Layer::cuda, LayerStatus::State::not_applicable, ""})["state"], "not-applicable");
}

TEST(ModelJsonTest, EveryNameOfAnEnumerationReadsBack) {
  for (const auto layer : kLayers) EXPECT_EQ(layer_from_string(to_string(layer)), layer);
  for (const auto severity : {Severity::info, Severity::note, Severity::warning, Severity::error}) {
    EXPECT_EQ(severity_from_string(to_string(severity)), severity);
  }
  for (const auto confidence : {Confidence::possible, Confidence::likely, Confidence::certain}) {
    EXPECT_EQ(confidence_from_string(to_string(confidence)), confidence);
  }
  EXPECT_EQ(severity_from_string("fatal"), std::nullopt);
}

TEST(MachineTest, AGpuIsFoundByItsPciAddressInEveryLayer) {
  const auto machine = tests::machine_with_gpu();
  ASSERT_NE(machine.gpu_by_bdf("0000:01:00.0"), nullptr);
  ASSERT_NE(machine.nvml_by_bdf("0000:01:00.0"), nullptr);
  ASSERT_NE(machine.cuda_by_bdf("0000:01:00.0"), nullptr);
  EXPECT_EQ(machine.nvml_by_bdf("0000:02:00.0"), nullptr);
  EXPECT_EQ(machine.gpu_label("0000:01:00.0"), "NVIDIA GeForce RTX 5090 (0000:01:00.0)");
  EXPECT_EQ(machine.gpu_label("0000:09:00.0"), "NVIDIA GPU (0000:09:00.0)");
}

TEST(MachineTest, AVariableIsThatOfTheProcessAskedAbout) {
  auto machine = tests::machine_with_gpu();
  machine.host.environment = {{"CUDA_VISIBLE_DEVICES", "1"}};
  EXPECT_EQ(machine.variable("CUDA_VISIBLE_DEVICES"), "1");
  machine.process.emplace();
  EXPECT_EQ(machine.variable("CUDA_VISIBLE_DEVICES"), std::nullopt);
  machine.process->environment = {{"CUDA_VISIBLE_DEVICES", "0"}};
  EXPECT_EQ(machine.variable("CUDA_VISIBLE_DEVICES"), "0");
}

TEST(HardwareTest, AChassisOrABatteryMakesItPortable) {
  Hardware hardware;
  EXPECT_FALSE(hardware.portable());
  hardware.chassis_type = 10;
  EXPECT_TRUE(hardware.portable());
  hardware.chassis_type = 3;
  EXPECT_FALSE(hardware.portable());
  hardware.power_supplies = {{"BAT0", "Battery", absent(Absent::not_there)}};
  EXPECT_TRUE(hardware.portable());
}

TEST(TorchTest, TheInstallThatWasImportedIsTheActiveOne) {
  Torch torch;
  torch.interpreter = "/b/bin/python";
  torch.installs.resize(2);
  torch.installs[0].site = "/a/site";
  torch.installs[0].interpreter = "/a/bin/python";
  torch.installs[1].site = "/b/site";
  torch.installs[1].interpreter = "/b/bin/python";
  EXPECT_EQ(torch.active(), &torch.installs[1]);
  torch.answers.file = "/a/site/torch/__init__.py";
  EXPECT_EQ(torch.active(), &torch.installs[0]);
  torch.answers.file.clear();
  torch.interpreter = "/c/bin/python";
  EXPECT_EQ(torch.active(), nullptr);
}

}  // namespace
}  // namespace fullwatt::model
