#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/support/machines.hpp"
#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "fullwatt/base/process.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/model/cuda.hpp"
#include "fullwatt/model/json.hpp"
#include "fullwatt/model/nvml.hpp"

namespace fullwatt::tests {
namespace {

using base::ChildResult;
using base::contains;
using base::Environment;
using model::Json;

const std::string kHealthy = std::string(FULLWATT_PATIENTS) + "/laptop-rtx4050-intel";

ChildResult run_program(std::vector<std::string> argv, Environment environment) {
  base::ChildOptions options;
  options.argv = std::move(argv);
  options.environment = std::move(environment);
  options.limit = std::chrono::minutes(4);
  options.output_limit = 64UL * 1024 * 1024;
  auto result = base::run_child(options);
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  auto answer = result.value_or(ChildResult{.exit_code = -1});
  EXPECT_FALSE(answer.timed_out);
  EXPECT_EQ(answer.signal, 0);
  return answer;
}

const Environment kPlain{{"PATH", "/usr/bin:/bin"}, {"LANG", "C.UTF-8"}};

/// Runs fullwatt with a plain environment, changed by `more`.
ChildResult fullwatt(std::vector<std::string> arguments, const Environment& more = {}) {
  auto environment = kPlain;
  for (const auto& [name, value] : more) environment[name] = value;
  arguments.insert(arguments.begin(), FULLWATT_PROGRAM);
  return run_program(std::move(arguments), environment);
}

Json json_of(const ChildResult& result) {
  auto json = Json::parse(result.out, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << result.out.substr(0, 200) << result.err;
  return json;
}

/// A copy of the healthy laptop and, beside it, one whose CUDA does not start.
class BrokenPatient {
 public:
  BrokenPatient() {
    folder_.write("laptop-rtx4050-intel/machine.yaml", read_all(kHealthy + "/machine.yaml"));
    folder_.write("broken/machine.yaml", "schema: 1\nbase: laptop-rtx4050-intel\ncuda: {init: 4711, devices: []}\n");
  }
  std::string path() const { return folder_ / "broken"; }

 private:
  TempFolder folder_;
};

TEST(UsageTest, HelpNamesTheCommandsAndExitCodes) {
  for (const auto& arguments : {std::vector<std::string>{}, {"--help"}}) {
    const auto result = fullwatt(arguments);
    EXPECT_EQ(result.exit_code, 0);
    for (const auto* word : {"doctor", "select", "explain", "Exit codes"})
      EXPECT_TRUE(contains(result.out, word)) << word;
  }
  const auto doctor = fullwatt({"doctor", "--help"});
  EXPECT_EQ(doctor.exit_code, 0);
  EXPECT_TRUE(contains(doctor.out, "--from"));
}

TEST(UsageTest, TheVersionIsOneLine) {
  const auto result = fullwatt({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(base::lines(result.out).size(), 1U);
  EXPECT_TRUE(contains(result.out, "."));
}

TEST(UsageTest, MistakesEndWithTwoAndAHint) {
  const std::vector<std::vector<std::string>> mistakes{
      {"doktor"},
      {"doctor", "--no-such-option"},
      {"doctor", "--json", "--html"},
      {"doctor", "--color", "blue"},
      {"doctor", "--lang", "fr"},
      {"doctor", "--fail-on", "sometimes"},
      {"doctor", "--timeout", "0"},
      {"doctor", "--pid", "-4"},
      {"select", "--json", "--export"},
      {"explain"},
      {"doctor", "--from", "/no/such/folder"},
      {"select", "--from", "/no/such/folder"},
      {"doctor", "--pid", "2147483647"},
      {"doctor", "--python", "/no/such/python"},
      {"doctor", "--log", "/no/such/log"},
      {"doctor", "--from", kHealthy, "--log", "/no/such/log"},
  };
  for (const auto& arguments : mistakes) {
    const auto result = fullwatt(arguments);
    EXPECT_EQ(result.exit_code, 2) << base::join(arguments, " ");
    EXPECT_TRUE(result.err.starts_with("fullwatt: ")) << result.err;
    EXPECT_GE(base::lines(result.err).size(), 2U) << "no hint: " << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST(UsageTest, WhatWasMeantIsSaid) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes{
      {{"doktor", "--json"}, "not expected: doktor --json\nDid you mean 'doctor'?\nTry 'fullwatt --help'.\n"},
      {{"tuen", "--", "python", "train.py"}, "Did you mean 'tune'?\n"},
      {{"tune", "--otput=plan.yaml", "--", "true"}, "Did you mean '--output'?\nTry 'fullwatt tune --help'.\n"},
      {{"run", "--lnag", "zh", "--", "true"}, "Did you mean '--lang'?\nTry 'fullwatt run --help'.\n"},
      {{"doctor", "-q"}, "not expected: -q\nTry 'fullwatt doctor --help'.\n"},
      {{"doctor", "--color", "blue"}, "Try 'fullwatt doctor --help'.\n"},
      {{"python", "train.py"}, "To watch a program: fullwatt run -- python train.py\n"},
      {{"train.py"}, "To watch a program: fullwatt run -- train.py\n"},
  };
  for (const auto& [arguments, words] : mistakes) {
    const auto result = fullwatt(arguments);
    EXPECT_EQ(result.exit_code, 2) << base::join(arguments, " ");
    EXPECT_TRUE(contains(result.err, words)) << result.err;
  }
}

TEST(UsageTest, AReaderThatGoesAwayIsNoError) {
  auto environment = kPlain;
  environment["PROGRAM"] = FULLWATT_PROGRAM;
  const auto result = run_program({"/bin/sh", "-c", "\"$PROGRAM\" doctor --list-checks | head -n 1"}, environment);
  EXPECT_EQ(base::lines(result.out).size(), 1U);
  EXPECT_EQ(result.err, "");
}

TEST(DoctorTest, AHealthyMachineEndsWithZero) {
  const auto result = fullwatt({"doctor", "--from", kHealthy});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_TRUE(contains(result.out, "ready to train"));
  EXPECT_EQ(result.err, "");
}

TEST(DoctorTest, ABrokenMachineEndsWithOneAndItsRootCause) {
  const BrokenPatient patient;
  const auto result = fullwatt({"doctor", "--from", patient.path()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(contains(result.out, "Root cause"));
  EXPECT_TRUE(contains(result.out, "cuda-fails"));
}

TEST(DoctorTest, FailOnDecidesTheExitCode) {
  const BrokenPatient patient;
  EXPECT_EQ(fullwatt({"doctor", "--from", patient.path(), "--fail-on", "never"}).exit_code, 0);
  EXPECT_EQ(fullwatt({"doctor", "--from", patient.path(), "--fail-on", "warning"}).exit_code, 1);
  EXPECT_EQ(fullwatt({"doctor", "--from", patient.path(), "--skip", "cuda-fails"}).exit_code, 0);
}

TEST(DoctorTest, AMissingGpuIsThreeWhereOneIsRequired) {
  const TempFolder folder;
  folder.write("none/machine.yaml", "schema: 1\nfiles: {/sys/bus/pci/devices/0000:00:00.0/class: '0x060000'}\n");
  EXPECT_EQ(fullwatt({"doctor", "--from", folder / "none"}).exit_code, 0);
  EXPECT_EQ(fullwatt({"doctor", "--from", folder / "none", "--require-gpu"}).exit_code, 3);
  EXPECT_EQ(fullwatt({"doctor", "--from", kHealthy, "--require-gpu"}).exit_code, 0);
}

TEST(DoctorTest, JsonParsesAndCarriesItsSchema) {
  const BrokenPatient patient;
  const auto json = json_of(fullwatt({"doctor", "--from", patient.path(), "--json"}));
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["root_cause"], "cuda-fails");
  EXPECT_EQ(json["layers"].size(), 5U);
  EXPECT_FALSE(json["findings"].empty());
}

TEST(DoctorTest, HtmlAndMarkdownAreWholeDocuments) {
  const BrokenPatient patient;
  const auto html = fullwatt({"doctor", "--from", patient.path(), "--html"});
  EXPECT_TRUE(html.out.starts_with("<!doctype html>"));
  EXPECT_TRUE(html.out.ends_with("</html>\n"));
  const auto markdown = fullwatt({"doctor", "--from", patient.path(), "--markdown"});
  EXPECT_TRUE(markdown.out.starts_with("## fullwatt"));
  EXPECT_TRUE(contains(markdown.out, "cuda-fails"));
}

TEST(DoctorTest, ATypingErrorInOnlyIsNoEmptyChoice) {
  for (const auto* option : {"--only", "--skip"}) {
    const auto result = fullwatt({"doctor", "--from", kHealthy, option, "cuda-fials"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_TRUE(contains(result.err, "Did you mean 'cuda-fails'?")) << result.err;
  }
}

TEST(DoctorTest, OnlyRunsTheChosenChecks) {
  const auto json = json_of(fullwatt({"doctor", "--from", kHealthy, "--json", "--only", "pytorch,nvml-fails"}));
  EXPECT_FALSE(json["checks"].empty());
  for (const auto& check : json["checks"])
    EXPECT_TRUE(check["layer"] == "pytorch" || check["id"] == "nvml-fails") << check["id"];
}

TEST(DoctorTest, ChecksCanBeListed) {
  const auto result = fullwatt({"doctor", "--list-checks"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_GT(base::lines(result.out).size(), 100U);
  EXPECT_TRUE(contains(result.out, "torch-cpu-wheel"));
}

TEST(DoctorTest, TheOutputOfATrainingIsLookedAt) {
  const TempFolder folder;
  const auto log = folder.write(
      "train.log", "epoch 1\nRuntimeError: Expected all tensors to be on the same device, but found two\n");
  const auto result = fullwatt({"doctor", "--from", kHealthy, "--log", log});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(contains(result.out, "tensors-on-two-devices"));
}

TEST(DoctorTest, AnEmptyStandardInputIsAnEmptyLog) {
  EXPECT_EQ(fullwatt({"doctor", "--from", kHealthy, "--log", "-"}).exit_code, 0);
}

TEST(DoctorTest, ALogFromAPipeIsReadToItsEnd) {
  auto environment = kPlain;
  environment["PROGRAM"] = FULLWATT_PROGRAM;
  environment["PATIENT"] = kHealthy;
  // More than a pipe holds, so that the reader has to wait for the writer.
  const auto* script =
      "{ head -c 2000000 /dev/zero | tr '\\0' x; echo; echo 'Expected all "
      "tensors to be on the same device, but'; } | "
      "\"$PROGRAM\" doctor --from \"$PATIENT\" --log -";
  const auto result = run_program({"/bin/sh", "-c", script}, environment);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_TRUE(contains(result.out, "tensors-on-two-devices"));
}

TEST(ColourTest, PipesAndNoColorGetNoEscapeCharacters) {
  const BrokenPatient patient;
  const std::vector<std::string> plain{"doctor", "--from", patient.path(), "-v"};
  EXPECT_EQ(fullwatt(plain).out.find('\x1b'), std::string::npos);
  EXPECT_EQ(fullwatt(plain, {{"NO_COLOR", "1"}, {"CLICOLOR_FORCE", "1"}}).out.find('\x1b'), std::string::npos);
  EXPECT_NE(fullwatt(plain, {{"CLICOLOR_FORCE", "1"}}).out.find('\x1b'), std::string::npos);
  EXPECT_NE(fullwatt({"--color", "always", "doctor", "--from", patient.path()}).out.find('\x1b'), std::string::npos);
  EXPECT_NE(fullwatt({"doctor", "--from", patient.path(), "--color", "always"}).out.find('\x1b'), std::string::npos);
}

TEST(LanguageTest, ChineseIsSpokenOnRequestAndByLocale) {
  const BrokenPatient patient;
  EXPECT_TRUE(contains(fullwatt({"doctor", "--from", patient.path(), "--lang", "zh"}).out, "根本原因"));
  EXPECT_TRUE(contains(fullwatt({"doctor", "--from", patient.path()}, {{"LANG", "zh_CN.UTF-8"}}).out, "根本原因"));
  EXPECT_TRUE(contains(fullwatt({"explain", "torch-cpu-wheel", "--lang", "zh"}).out, "解决"));
  EXPECT_TRUE(contains(fullwatt({"doctor", "--from", patient.path()}, {{"LANG", "C"}}).out, "[x]"));
}

TEST(ExplainTest, AKnownIdIsExplained) {
  const auto result = fullwatt({"explain", "torch-cpu-wheel"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(contains(result.out, "torch-cpu-wheel"));
  EXPECT_GT(base::lines(result.out).size(), 5U);
}

TEST(ExplainTest, AMistypedIdGetsASuggestion) {
  const auto result = fullwatt({"explain", "torch-cpu-weel"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(contains(result.err, "Did you mean 'torch-cpu-wheel'?"));
  EXPECT_TRUE(contains(fullwatt({"explain", "zzzzzzzzzzzz"}).err, "--list-checks"));
}

TEST(SelectTest, TheShellGetsTheUuidOfTheDiscreteGpu) {
  const auto result = fullwatt({"select", "--export", "--from", kHealthy});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(
      result.out,
      "export CUDA_DEVICE_ORDER=PCI_BUS_ID\nexport CUDA_VISIBLE_DEVICES=GPU-4050bbbb-1111-2222-3333-444455556666\n");
  EXPECT_TRUE(contains(result.err, "discrete"));
}

TEST(SelectTest, JsonAndTextNameTheSameGpu) {
  const auto json = json_of(fullwatt({"select", "--json", "--from", kHealthy}));
  EXPECT_EQ(json["selected"], "GPU-4050bbbb-1111-2222-3333-444455556666");
  EXPECT_TRUE(contains(fullwatt({"select", "--from", kHealthy}).out, "GPU-4050bbbb-1111-2222-3333-444455556666"));
}

TEST(SelectTest, WithoutAGpuItEndsWithThree) {
  const TempFolder folder;
  folder.write("none/machine.yaml", "schema: 1\n");
  const auto result = fullwatt({"select", "--export", "--from", folder / "none"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "");
}

/// This machine, with stand-ins for the driver's libraries that answer what a test wants.
class ThisMachineTest : public testing::Test {
 protected:
  void SetUp() override {
    const Gpu gpu;
    model::Nvml nvml;
    nvml.init = 0;
    nvml.driver_version = "580.95.05";
    nvml.cuda_version = 13000;
    nvml.devices = {nvml_device(gpu, 0)};
    model::CudaAnswers cuda;
    cuda.init = 0;
    cuda.driver_version = 13000;
    cuda.devices = {cuda_device(gpu, 0)};
    environment_ = {{"LD_LIBRARY_PATH", FULLWATT_FAKES},
                    {"FULLWATT_FAKE_NVML", folder_.write("nvml.json", model::dump(model::to_json(nvml)))},
                    {"FULLWATT_FAKE_CUDA", folder_.write("cuda.json", model::dump(model::to_json(cuda)))},
                    {"HOME", "/home/quite-a-person"},
                    {"VIRTUAL_ENV", "/home/quite-a-person/venv"}};
  }

  ChildResult doctor(std::vector<std::string> arguments, const Environment& more = {}) {
    auto environment = environment_;
    for (const auto& [name, value] : more) environment[name] = value;
    arguments.insert(arguments.begin(), {"doctor", "--no-torch"});
    return fullwatt(std::move(arguments), environment);
  }

  TempFolder folder_;
  Environment environment_;
};

TEST_F(ThisMachineTest, TheLibrariesAreAskedInChildren) {
  const auto json = json_of(doctor({"--json"}));
  ASSERT_EQ(json["machine"]["nvml"]["devices"].size(), 1U);
  EXPECT_EQ(json["machine"]["nvml"]["devices"][0]["name"], "NVIDIA GeForce RTX 5090");
  ASSERT_EQ(json["machine"]["cuda"]["answers"]["devices"].size(), 1U);
  EXPECT_EQ(json["machine"]["cuda"]["answers"]["devices"][0]["launch"], 0);
  EXPECT_TRUE(json["problems"].empty());
}

TEST_F(ThisMachineTest, ASavedMachineIsDiagnosedAsTheLiveOne) {
  const auto live = doctor({"--json", "--save", folder_ / "saved"});
  EXPECT_TRUE(contains(live.err, "saved to"));
  const auto saved = fullwatt({"doctor", "--json", "--from", folder_ / "saved"});
  EXPECT_EQ(saved.exit_code, live.exit_code);
  const auto before = json_of(live);
  const auto after = json_of(saved);
  EXPECT_EQ(after["findings"].dump(1), before["findings"].dump(1));
  EXPECT_EQ(after["layers"].dump(1), before["layers"].dump(1));
  EXPECT_EQ(after["root_cause"], before["root_cause"]);
}

TEST_F(ThisMachineTest, SavingOverASavedMachineIsRefused) {
  ASSERT_TRUE(contains(doctor({"--save", folder_ / "saved"}).err, "saved to"));
  const auto again = doctor({"--save", folder_ / "saved"});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_TRUE(contains(again.err, "cannot write"));
}

TEST_F(ThisMachineTest, AHangingNvmlIsNamedAndDoesNotHoldTheReport) {
  const auto result = doctor({"--timeout", "1"}, {{"FULLWATT_FAKE_NVML_HANG", "1"}});
  EXPECT_TRUE(contains(result.out, "nvml: NVML gave no answer within")) << result.out;
  EXPECT_NE(result.exit_code, 2);
}

TEST_F(ThisMachineTest, ACrashingNvmlIsNamedAndDoesNotTakeTheReportWithIt) {
  const auto result = doctor({}, {{"FULLWATT_FAKE_NVML_CRASH", "1"}});
  EXPECT_TRUE(contains(result.out, "nvml: NVML crashed with signal 6")) << result.out;
}

TEST_F(ThisMachineTest, AHangingOrCrashingLibcudaIsNamedToo) {
  EXPECT_TRUE(contains(doctor({"--timeout", "1"}, {{"FULLWATT_FAKE_CUDA_HANG", "1"}}).out,
                       "cuda: libcuda gave no answer within"));
  EXPECT_TRUE(contains(doctor({}, {{"FULLWATT_FAKE_CUDA_CRASH", "1"}}).out, "cuda: libcuda crashed with signal 6"));
}

TEST_F(ThisMachineTest, AnUnknownProbeIsRefused) {
  EXPECT_EQ(fullwatt({"__probe", "coffee"}).exit_code, 2);
}

TEST_F(ThisMachineTest, ABundleIsPrivateAndTellsNoNames) {
  const auto bundle = folder_ / "bundle.tar.gz";
  const auto result = doctor({"--bundle", bundle});
  ASSERT_TRUE(contains(result.err, "wrote")) << result.err;
  struct stat info{};
  ASSERT_EQ(::stat(bundle.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  const auto content = run_program({"tar", "xzOf", bundle}, kPlain);
  ASSERT_EQ(content.exit_code, 0) << content.err;
  EXPECT_FALSE(contains(content.out, "quite-a-person"));
  EXPECT_FALSE(contains(content.out, Gpu{}.uuid));
  EXPECT_TRUE(contains(content.out, "/home/user/venv"));
}

TEST_F(ThisMachineTest, AnUnpackedBundleReplays) {
  const auto bundle = folder_ / "bundle.tar.gz";
  const auto live = doctor({"--json", "--bundle", bundle});
  ASSERT_EQ(run_program({"tar", "xzf", bundle, "-C", folder_.path()}, kPlain).exit_code, 0);
  const auto replayed = json_of(fullwatt({"doctor", "--json", "--from", folder_ / "fullwatt-bundle"}));
  const auto ids = [](const Json& report) {
    std::set<std::string> found;
    for (const auto& finding : report["findings"]) found.insert(finding["id"].get<std::string>());
    return found;
  };
  EXPECT_EQ(ids(replayed), ids(json_of(live)));
}

TEST_F(ThisMachineTest, ABundleIsNeverWrittenOverAFile) {
  const auto precious = folder_.write("precious.tar.gz", "keep me");
  EXPECT_EQ(doctor({"--bundle", precious}).exit_code, 2);
  EXPECT_EQ(read_all(precious), "keep me");
}

}  // namespace
}  // namespace fullwatt::tests
