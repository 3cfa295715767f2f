#include <algorithm>
#include <set>

#include "catalog/catalog.hpp"
#include "tests/support/machines.hpp"
#include <gtest/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/diagnose.hpp"
#include "fullwatt/doctor/rules/rule.hpp"
#include "fullwatt/model/json.hpp"

namespace fullwatt::doctor {
namespace {

using base::absent;
using base::Absent;
using model::CheckResult;
using model::Confidence;
using model::Diagnosis;
using model::Layer;
using model::LayerStatus;
using model::Machine;
using model::Severity;
using tests::machine_with_gpu;
using tests::machine_without_gpu;

const std::string kFellOffBus =
    "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";
const std::string kNvlink =
    "NVRM: Xid (PCI:0000:01:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 2";
const std::string kTwoDevices =
    "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!";

/// A machine on which cuInit fails in a way that no rule knows.
Machine cuda_broken() {
  auto machine = machine_with_gpu();
  machine.cuda.answers.init = 4711;
  machine.cuda.answers.devices.clear();
  machine.gpus[0].cuda_ordinal.reset();
  return machine;
}

/// A line that a log pattern fits.
std::string line_for(std::string_view pattern) {
  std::string line;
  bool inside = false;
  for (const char c : pattern) {
    if (c == '{') line += "7";
    inside = c == '{' || (inside && c != '}');
    if (!inside && c != '}' && c != '*') line += c;
  }
  return line;
}

/// An entry that the output of a training shows by itself.
const catalog::Entry* entry_in_log(Severity severity, Confidence confidence, Layer from) {
  for (const auto& entry : catalog::entries()) {
    if (!entry.training_log.empty() && entry.severity == severity && entry.confidence == confidence &&
        entry.layer >= from && !entry.symptom && entry.explained_by.empty()) {
      return &entry;
    }
  }
  return nullptr;
}

const CheckResult* check(const Diagnosis& diagnosis, std::string_view id) {
  const auto at = std::ranges::find(diagnosis.checks, id, &CheckResult::id);
  return at == diagnosis.checks.end() ? nullptr : &*at;
}

LayerStatus::State state(const Diagnosis& diagnosis, Layer layer) {
  return diagnosis.layers.at(static_cast<std::size_t>(layer)).state;
}

TEST(DiagnoseTest, AHealthyMachineHasNoRootCause) {
  const auto diagnosis = diagnose(machine_with_gpu());
  EXPECT_EQ(diagnosis.root_cause, "");
  for (const auto& finding : diagnosis.findings) EXPECT_LT(finding.severity, Severity::warning) << finding.id;
  for (const auto layer : model::kLayers)
    EXPECT_EQ(state(diagnosis, layer), LayerStatus::State::works) << to_string(layer);
}

TEST(DiagnoseTest, AMachineWithoutAGpuIsNotBroken) {
  auto machine = machine_without_gpu();
  machine.driver.loaded = false;
  machine.driver.nodes.clear();
  machine.nvml = {};
  machine.nvml.init = absent(Absent::not_there);
  machine.cuda = {};
  machine.cuda.answers.init = absent(Absent::not_there);
  machine.torch.answers.available = false;
  const auto diagnosis = diagnose(machine);
  EXPECT_EQ(diagnosis.root_cause, "");
  EXPECT_NE(diagnosis.find("no-nvidia-gpu"), nullptr);
  EXPECT_EQ(state(diagnosis, Layer::hardware), LayerStatus::State::not_applicable);
  EXPECT_EQ(state(diagnosis, Layer::driver), LayerStatus::State::not_applicable);
}

TEST(DiagnoseTest, AnEmptyMachineCanBeDiagnosed) {
  const auto diagnosis = diagnose(Machine{});
  EXPECT_EQ(diagnosis.layers.size(), model::kLayers.size());
  EXPECT_EQ(diagnosis.checks.size(), catalog::entries().size());
}

TEST(DiagnoseTest, TheLowestBrokenLayerNamesTheRootCause) {
  auto machine = cuda_broken();
  machine.driver.kernel_log = std::vector<std::string>{kFellOffBus};
  machine.log = {kTwoDevices};
  const auto diagnosis = diagnose(machine);
  EXPECT_EQ(diagnosis.root_cause, "gpu-fell-off-bus");
  ASSERT_FALSE(diagnosis.findings.empty());
  EXPECT_EQ(diagnosis.findings.front().id, "gpu-fell-off-bus");
  ASSERT_NE(diagnosis.find("tensors-on-two-devices"), nullptr);
  EXPECT_EQ(diagnosis.find("tensors-on-two-devices")->consequence_of, "");
  EXPECT_EQ(state(diagnosis, Layer::hardware), LayerStatus::State::broken);
}

TEST(DiagnoseTest, ASymptomFollowsFromTheRootCause) {
  auto machine = cuda_broken();
  machine.driver.kernel_log = std::vector<std::string>{kFellOffBus};
  const auto diagnosis = diagnose(machine);
  ASSERT_NE(diagnosis.find("cuda-fails"), nullptr);
  EXPECT_EQ(diagnosis.find("cuda-fails")->consequence_of, "gpu-fell-off-bus");
  EXPECT_EQ(diagnosis.findings.back().consequence_of, "gpu-fell-off-bus");
}

TEST(DiagnoseTest, ASymptomThatNobodyExplainsIsTheRootCause) {
  const auto diagnosis = diagnose(cuda_broken());
  EXPECT_EQ(diagnosis.root_cause, "cuda-fails");
  EXPECT_EQ(diagnosis.find("cuda-fails")->consequence_of, "");
  EXPECT_EQ(diagnosis.find("cuda-fails")->facts.at("code").substr(0, 4), "4711");
  EXPECT_EQ(state(diagnosis, Layer::cuda), LayerStatus::State::broken);
}

TEST(DiagnoseTest, OfTwoSymptomsTheLowerOneIsTheRootCause) {
  auto machine = cuda_broken();
  machine.torch.answers.available = false;
  machine.torch.answers.devices.clear();
  const auto diagnosis = diagnose(machine);
  EXPECT_EQ(diagnosis.root_cause, "cuda-fails");
  ASSERT_NE(diagnosis.find("torch-sees-no-gpu"), nullptr);
  EXPECT_EQ(diagnosis.find("torch-sees-no-gpu")->consequence_of, "cuda-fails");
}

TEST(DiagnoseTest, AFindingThatAnotherExplainsIsItsConsequence) {
  auto machine = cuda_broken();
  machine.driver.kernel_log = std::vector<std::string>{kNvlink};
  EXPECT_EQ(diagnose(machine).root_cause, "nvlink-error");
  machine.driver.kernel_log->push_back(kFellOffBus);
  const auto diagnosis = diagnose(machine);
  EXPECT_EQ(diagnosis.root_cause, "gpu-fell-off-bus");
  EXPECT_EQ(diagnosis.find("nvlink-error")->consequence_of, "gpu-fell-off-bus");
}

TEST(DiagnoseTest, APossibleCauseNeverBeatsASureOne) {
  const auto* possible = entry_in_log(Severity::error, Confidence::possible, Layer::hardware);
  ASSERT_NE(possible, nullptr);
  const auto* sure = entry_in_log(Severity::error, Confidence::certain, possible->layer);
  ASSERT_NE(sure, nullptr);
  auto machine = machine_with_gpu();
  machine.log = {line_for(possible->training_log.front())};
  EXPECT_EQ(diagnose(machine).root_cause, possible->id);
  machine.log->push_back(line_for(sure->training_log.front()));
  EXPECT_EQ(diagnose(machine).root_cause, sure->id);
}

TEST(DiagnoseTest, APossibleCauseIsBetterThanABareSymptom) {
  const auto* possible = entry_in_log(Severity::error, Confidence::possible, Layer::hardware);
  ASSERT_NE(possible, nullptr);
  auto machine = machine_with_gpu();
  machine.cuda.answers.devices[0].launch = 4711;
  machine.log = {line_for(possible->training_log.front())};
  const auto diagnosis = diagnose(machine);
  EXPECT_EQ(diagnosis.root_cause, possible->id);
  EXPECT_EQ(diagnosis.find("cuda-kernel-fails")->consequence_of, possible->id);
}

TEST(DiagnoseTest, ACauseAboveASymptomDoesNotExplainIt) {
  auto machine = cuda_broken();
  machine.nvml.init = 4711;
  machine.nvml.devices.clear();
  machine.log = {"AssertionError: Torch not compiled with CUDA enabled"};
  const auto diagnosis = diagnose(machine);
  ASSERT_NE(diagnosis.find("torch-cpu-wheel"), nullptr);
  EXPECT_EQ(diagnosis.root_cause, "nvml-fails");
  EXPECT_EQ(diagnosis.find("torch-cpu-wheel")->consequence_of, "");
}

TEST(DiagnoseTest, FindingsStandByRootSeverityAndConsequence) {
  auto machine = cuda_broken();
  machine.driver.kernel_log = std::vector<std::string>{kFellOffBus, kNvlink};
  machine.log = {kTwoDevices, "Some modules are dispatched on the CPU or the disk."};
  const auto diagnosis = diagnose(machine);
  const auto rank = [&](const auto& f) {
    return std::tuple(f.id != diagnosis.root_cause, !f.consequence_of.empty(), -static_cast<int>(f.severity));
  };
  EXPECT_GE(diagnosis.findings.size(), 4U);
  EXPECT_TRUE(std::ranges::is_sorted(diagnosis.findings, {}, rank));
}

TEST(DiagnoseTest, TheSameFactsGiveTheSameAnswer) {
  auto machine = cuda_broken();
  machine.log = {kTwoDevices};
  EXPECT_EQ(model::to_json(diagnose(machine)), model::to_json(diagnose(machine)));
}

TEST(LogPatternTest, CapturedWordsBecomeFacts) {
  auto machine = machine_with_gpu();
  machine.log = {
      "epoch 1",
      "RuntimeError: Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 1. Please use "
      "torch.load with map_location"};
  const auto diagnosis = diagnose(machine);
  const auto* finding = diagnosis.find("wrong-device-index");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->facts.at("index"), "3");
  EXPECT_EQ(finding->facts.at("count"), "1");
  ASSERT_FALSE(finding->evidence.empty());
  EXPECT_EQ(finding->evidence[0].where, "training log");
  EXPECT_TRUE(finding->evidence[0].value.starts_with("RuntimeError: Attempting"));
}

TEST(LogPatternTest, AnXidNamesItsGpu) {
  auto machine = machine_without_gpu();
  tests::add_nvidia(machine, {.bdf = "0000:01:00.0", .uuid = "GPU-1", .name = "one"});
  tests::add_nvidia(machine, {.bdf = "0000:02:00.0", .uuid = "GPU-2", .name = "two"});
  machine.driver.kernel_log = std::vector<std::string>{"NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus."};
  const auto diagnosis = diagnose(machine);
  const auto* finding = diagnosis.find("gpu-fell-off-bus");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->facts.at("gpu"), "two (0000:02:00.0)");
  EXPECT_EQ(finding->facts.at("bdf"), "0000:02:00.0");
}

TEST(LogPatternTest, HostileLinesAreMadePrintable) {
  auto machine = machine_with_gpu();
  machine.log = {"\x1b[2J\x1b[31mCUDA error: invalid device ordinal\a"};
  const auto diagnosis = diagnose(machine);
  const auto* finding = diagnosis.find("wrong-device-index");
  ASSERT_NE(finding, nullptr);
  EXPECT_EQ(finding->evidence[0].value.find('\x1b'), std::string::npos);
  EXPECT_EQ(finding->evidence[0].value.find('\a'), std::string::npos);
}

TEST(LogPatternTest, EveryPatternOfTheCatalogueFindsItsEntry) {
  for (const auto& entry : catalog::entries()) {
    for (const auto pattern : entry.training_log) {
      auto machine = machine_with_gpu();
      machine.log = {"before", "prefix " + line_for(pattern) + " suffix"};
      EXPECT_NE(diagnose(machine).find(entry.id), nullptr) << entry.id << ": " << pattern;
    }
    for (const auto pattern : entry.kernel_log) {
      auto machine = machine_with_gpu();
      machine.driver.kernel_log = std::vector<std::string>{line_for(pattern)};
      EXPECT_NE(diagnose(machine).find(entry.id), nullptr) << entry.id << ": " << pattern;
    }
  }
}

TEST(ChoiceTest, OnlyTakesIdsBeginningsAndLayers) {
  const Choice choice{{"cuda-fails", "torch-", "hardware"}, {}};
  EXPECT_TRUE(choice.wants("cuda-fails", Layer::cuda));
  EXPECT_TRUE(choice.wants("torch-cpu-wheel", Layer::pytorch));
  EXPECT_TRUE(choice.wants("anything", Layer::hardware));
  EXPECT_FALSE(choice.wants("cuda-kernel-fails", Layer::cuda));
}

TEST(ChoiceTest, SkipGoesBeforeOnly) {
  const Choice choice{{"cuda"}, {"cuda-fails"}};
  EXPECT_TRUE(choice.wants("cuda-kernel-fails", Layer::cuda));
  EXPECT_FALSE(choice.wants("cuda-fails", Layer::cuda));
  EXPECT_TRUE(Choice{}.wants("whatever", Layer::driver));
}

TEST(ChoiceTest, OnlyTheChosenChecksRun) {
  auto machine = cuda_broken();
  machine.torch.answers.available = false;
  const auto only = diagnose(machine, {{"pytorch"}, {}});
  EXPECT_EQ(only.root_cause, "torch-sees-no-gpu");
  for (const auto& result : only.checks) EXPECT_EQ(result.layer, Layer::pytorch) << result.id;
  const auto without = diagnose(machine, {{}, {"pytorch", "cuda-fails"}});
  EXPECT_EQ(without.find("cuda-fails"), nullptr);
  EXPECT_EQ(check(without, "torch-sees-no-gpu"), nullptr);
  EXPECT_NE(check(without, "cuda-kernel-fails"), nullptr);
}

TEST(CheckTest, EveryEntryIsCheckedOnceAndItsResultFitsTheFindings) {
  auto machine = cuda_broken();
  machine.nvml.init = absent(Absent::timed_out, "no answer");
  machine.nvml.devices.clear();
  const auto diagnosis = diagnose(machine);
  ASSERT_EQ(diagnosis.checks.size(), catalog::entries().size());
  std::set<std::string> ids;
  for (const auto& result : diagnosis.checks) {
    EXPECT_TRUE(ids.insert(result.id).second) << result.id;
    EXPECT_EQ(diagnosis.find(result.id) != nullptr, result.status == CheckResult::Status::found) << result.id;
    EXPECT_EQ(result.reason.empty(),
              result.status == CheckResult::Status::passed || result.status == CheckResult::Status::found)
        << result.id << ": " << result.reason;
  }
}

TEST(CheckTest, WhatOnlyALoadShowsIsSkippedWithThatReason) {
  const auto diagnosis = diagnose(machine_with_gpu());
  int seen = 0;
  for (const auto& entry : catalog::entries()) {
    if (entry.needs != catalog::kLoad) continue;
    ++seen;
    EXPECT_EQ(check(diagnosis, entry.id)->status, CheckResult::Status::skipped) << entry.id;
    EXPECT_NE(check(diagnosis, entry.id)->reason.find("fullwatt run"), std::string::npos) << entry.id;
  }
  EXPECT_GT(seen, 0);
}

TEST(CheckTest, WhatOnlyALogShowsIsSkippedWithoutOne) {
  auto machine = machine_with_gpu();
  ASSERT_NE(check(diagnose(machine), "tensors-on-two-devices"), nullptr);
  EXPECT_EQ(check(diagnose(machine), "tensors-on-two-devices")->reason, "no log asked about (--log)");
  machine.log = {"all is well"};
  EXPECT_EQ(check(diagnose(machine), "tensors-on-two-devices")->status, CheckResult::Status::passed);
}

/// Rules that are alone in deciding about their entry.
std::vector<Rule> sole_rules(unsigned need) {
  std::vector<Rule> found;
  const auto rules = all_rules();
  for (const auto& rule : rules) {
    if ((rule.requires_ & need) != 0 && std::ranges::count(rules, rule.id, &Rule::id) == 1) found.push_back(rule);
  }
  return found;
}

void expect_skipped(const Machine& machine, unsigned need, const std::string& reason) {
  const auto diagnosis = diagnose(machine);
  const auto rules = sole_rules(need);
  EXPECT_FALSE(rules.empty()) << reason;
  for (const auto& rule : rules) {
    const auto* result = check(diagnosis, rule.id);
    ASSERT_NE(result, nullptr) << rule.id;
    EXPECT_EQ(result->status, CheckResult::Status::skipped) << rule.id;
    EXPECT_NE(result->reason, "") << rule.id;
  }
  const auto gives = [&](const CheckResult& result) { return base::contains(result.reason, reason); };
  EXPECT_TRUE(std::ranges::any_of(diagnosis.checks, gives)) << reason;
}

TEST(CheckTest, ARuleWhoseFactsAreAbsentIsSkippedWithTheReason) {
  auto machine = machine_with_gpu();
  machine.nvml.init = absent(Absent::asleep);
  machine.nvml.devices.clear();
  expect_skipped(machine, kNvml, "NVML: asleep");

  machine = machine_with_gpu();
  machine.nvml.init = 999;
  machine.nvml.devices.clear();
  expect_skipped(machine, kNvml, "NVML does not work");

  machine = machine_with_gpu();
  machine.cuda.answers.init = absent(Absent::timed_out, "libcuda gave no answer within 20 s");
  expect_skipped(machine, kCuda, "CUDA: timed-out (libcuda gave no answer within 20 s)");

  machine = machine_with_gpu();
  machine.torch.answers.version = absent(Absent::not_there);
  expect_skipped(machine, kTorch, "PyTorch: not-there");

  machine = machine_with_gpu();
  machine.hardware.pci_devices = absent(Absent::no_permission);
  expect_skipped(machine, kPci, "PCI bus: no-permission");

  expect_skipped(machine_with_gpu(), kProcess, "no process asked about (--pid)");
}

}  // namespace
}  // namespace fullwatt::doctor
