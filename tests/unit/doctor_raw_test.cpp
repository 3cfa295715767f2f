#include <cerrno>
#include <filesystem>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/probe/examine.hpp"
#include "fullwatt/doctor/probe/raw.hpp"
#include "fullwatt/model/json.hpp"

namespace fullwatt::doctor {
namespace {

using base::Absent;
using tests::read_all;
using tests::TempFolder;

const std::string kBase = R"(schema: 1
about: the base
expect: {root_cause: base-cause}
system:
  kernel: 6.8.0
  groups: [4, 27]
  packages: {nvidia-driver-580: '580', cuda: '13.0'}
  kernel_log: [one, two]
environment: {HOME: /home/ada, PATH: /usr/bin}
nvml:
  init: 0
  driver_version: 580.95.05
  devices:
    - {index: 0, name: first, power_mw: 100}
    - {index: 1, name: second, power_mw: 200}
files:
  /a/text: hello
  /a/deep/one: '1'
  /a/deep/two: '2'
  /ab: stays
)";

/// Lays a patient over the base above.
base::Result<RawMachine> over_base(const std::string& patient) {
  const TempFolder folder;
  folder.write("base/machine.yaml", kBase);
  folder.write("patient/machine.yaml", "schema: 1\nbase: base\n" + patient);
  return load_raw(folder / "patient");
}

RawMachine loaded(const std::string& patient) {
  auto raw = over_base(patient);
  EXPECT_TRUE(raw) << (raw ? "" : raw.error().message);
  return raw.value_or(RawMachine{});
}

TEST(OverlayTest, WhatThePatientDoesNotSayComesFromTheBase) {
  const auto raw = loaded("about: mine");
  EXPECT_EQ(raw.about, "mine");
  EXPECT_EQ(raw.system.kernel, "6.8.0");
  EXPECT_EQ(raw.environment.at("HOME"), "/home/ada");
  EXPECT_EQ(raw.nvml.devices.size(), 2U);
  EXPECT_EQ(raw.files.size(), 4U);
}

TEST(OverlayTest, MappingsMergeKeyByKey) {
  const auto raw = loaded("system: {kernel: 6.9.0, packages: {cuda: '13.2', nccl: '2'}}");
  EXPECT_EQ(raw.system.kernel, "6.9.0");
  EXPECT_EQ(raw.system.packages,
            (std::map<std::string, std::string>{{"nvidia-driver-580", "580"}, {"cuda", "13.2"}, {"nccl", "2"}}));
  EXPECT_EQ(raw.system.groups, (std::vector<std::uint32_t>{4, 27}));
}

TEST(OverlayTest, NullTakesAKeyAway) {
  const auto raw = loaded("system: {packages: {cuda: null}}\nenvironment: {PATH: ~}");
  EXPECT_EQ(raw.system.packages.count("cuda"), 0U);
  EXPECT_EQ(raw.environment.count("PATH"), 0U);
  EXPECT_EQ(raw.environment.count("HOME"), 1U);
}

TEST(OverlayTest, AListReplacesAList) {
  EXPECT_EQ(loaded("system: {kernel_log: [three]}").system.kernel_log.value(), std::vector<std::string>{"three"});
  EXPECT_TRUE(loaded("nvml: {devices: []}").nvml.devices.empty());
}

TEST(OverlayTest, AMappingOfNumbersPatchesElementsOfAList) {
  const auto raw = loaded("nvml: {devices: {1: {power_mw: 250}}}");
  ASSERT_EQ(raw.nvml.devices.size(), 2U);
  EXPECT_EQ(raw.nvml.devices[0].power_mw.value(), 100);
  EXPECT_EQ(raw.nvml.devices[1].power_mw.value(), 250);
  EXPECT_EQ(raw.nvml.devices[1].name.value(), "second");
}

TEST(OverlayTest, AnElementTheBaseDoesNotHaveIsAnError) {
  for (const auto* index : {"2", "-1", "x", "99999999999999999999"}) {
    const auto raw = over_base(std::string("nvml: {devices: {'") + index + "': {power_mw: 1}}}");
    ASSERT_FALSE(raw) << index;
    EXPECT_NE(raw.error().message.find("the base has no element with this number"), std::string::npos);
  }
}

TEST(OverlayTest, AnAbsentReadingReplacesWhatWasThere) {
  const auto raw =
      loaded("nvml: {init: {absent: failed, code: 999, detail: no}}\nsystem: {kernel_log: {absent: no-permission}}");
  ASSERT_FALSE(raw.nvml.init);
  EXPECT_EQ(raw.nvml.init.error(), base::absent(Absent::failed, "no", 999));
  EXPECT_EQ(raw.system.kernel_log.error().reason, Absent::no_permission);
}

TEST(OverlayTest, AValueReplacesAnAbsentReading) {
  const TempFolder folder;
  folder.write("base/machine.yaml", "schema: 1\nnvml: {init: {absent: asleep}}\n");
  folder.write("patient/machine.yaml", "schema: 1\nbase: base\nnvml: {init: 0}\n");
  const auto raw = load_raw(folder / "patient");
  ASSERT_TRUE(raw) << raw.error().message;
  EXPECT_TRUE(raw->nvml.init.is(0));
}

TEST(OverlayTest, TheExpectationIsReplacedAsAWhole) {
  const auto raw = loaded("expect: {findings: [a, b]}");
  EXPECT_EQ(raw.expect.root_cause, "");
  EXPECT_EQ(raw.expect.findings, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(loaded("").expect.root_cause, "base-cause");
}

TEST(OverlayTest, ANullPathTakesEverythingBelowItAway) {
  const auto raw = loaded("files: {/a: null, /new: x}");
  EXPECT_EQ(raw.files.size(), 2U);
  EXPECT_TRUE(raw.files.contains("/ab"));
  EXPECT_TRUE(raw.files.contains("/new"));
}

TEST(OverlayTest, ABaseMayHaveABase) {
  const TempFolder folder;
  folder.write("one/machine.yaml", "schema: 1\nsystem: {kernel: a, machine: x86_64}\n");
  folder.write("two/machine.yaml", "schema: 1\nbase: one\nsystem: {kernel: b}\n");
  folder.write("three/machine.yaml", "schema: 1\nbase: two\nsystem: {cpus: 0-1}\n");
  const auto raw = load_raw(folder / "three");
  ASSERT_TRUE(raw) << raw.error().message;
  EXPECT_EQ(raw->system.kernel, "b");
  EXPECT_EQ(raw->system.machine, "x86_64");
}

RawMachine parsed(const std::string& yaml) {
  auto raw = parse_raw("schema: 1\n" + yaml);
  EXPECT_TRUE(raw) << (raw ? "" : raw.error().message);
  return raw.value_or(RawMachine{});
}

TEST(FileFormTest, EveryFormAnswersAsTheMachineWould) {
  const auto raw = parsed(R"(
system: {uid: 1000, groups: [44]}
files:
  /text: 0x10de
  /block: |
    one
    two
  /link: {link: ../target}
  /dev/nvidia0: {device: '195:7', mode: '0660', uid: '0', gid: '44'}
  /dev/nvidia1: {device: '195:1', mode: '0600'}
  /big: {size: '123456789012'}
  /refused: {text: x, open: EPERM}
  /secret: {error: EACCES}
  /unreadable: {size: '5', read: EACCES}
  /bytes: {hex: 00ff0a}
  /empty: {kind: directory}
  /number: {text: x, open: '5'}
)");
  const auto world = replay(raw);
  auto& files = world->files();
  EXPECT_EQ(files.read("/text").value(), "0x10de");
  EXPECT_EQ(files.read("/block").value(), "one\ntwo\n");
  EXPECT_EQ(files.read_link("/link").value(), "../target");
  EXPECT_EQ(files.info("/dev/nvidia0").value().major, 195U);
  EXPECT_EQ(files.info("/dev/nvidia0").value().minor, 7U);
  EXPECT_EQ(files.open_error("/dev/nvidia0"), 0);
  EXPECT_EQ(files.open_error("/dev/nvidia1"), EACCES);
  EXPECT_EQ(files.info("/big").value().size, 123456789012U);
  EXPECT_EQ(files.open_error("/refused"), EPERM);
  EXPECT_EQ(files.open_error("/number"), EIO);
  EXPECT_EQ(files.read("/secret").error().reason, Absent::no_permission);
  EXPECT_EQ(files.read("/unreadable").error().reason, Absent::no_permission);
  EXPECT_TRUE(files.exists("/unreadable"));
  EXPECT_EQ(files.read("/bytes").value(), std::string("\0\xff\n", 3));
  EXPECT_EQ(files.list("/empty").value(), std::vector<std::string>{});
}

TEST(FileFormTest, TextThatLooksLikeANumberStaysText) {
  const auto raw = parsed("files: {/n: 8, /f: 1.50, /b: true}\nenvironment: {A: 0, B: 010}");
  EXPECT_EQ(raw.files.at("/n").text.value(), "8");
  EXPECT_EQ(raw.files.at("/f").text.value(), "1.50");
  EXPECT_EQ(raw.files.at("/b").text.value(), "true");
  EXPECT_EQ(raw.environment.at("B"), "010");
}

TEST(FileFormTest, WordsThatLookLikeFloatsStayWords) {
  const auto raw = parsed("system: {kernel: nan, machine: infinity}\ntorch: {python: inf}");
  EXPECT_EQ(raw.system.kernel, "nan");
  EXPECT_EQ(raw.system.machine, "infinity");
  EXPECT_EQ(raw.torch.python, "inf");
}

TEST(TargetTest, WhatWasAskedIsPartOfTheMachine) {
  const auto raw = parsed("target: {pid: 42, python: /x/python, wake: true, log: \"a\\nb\\n\"}");
  EXPECT_EQ(raw.target.pid, 42);
  EXPECT_EQ(raw.target.python, "/x/python");
  EXPECT_TRUE(raw.target.wake);
  EXPECT_EQ(raw.target.log, (std::vector<std::string>{"a", "b"}));
}

/// A machine with every form of file and reading, as a recording gives it.
RawMachine recorded_machine() {
  auto raw = parsed(kBase.substr(kBase.find('\n') + 1));
  raw.files["/bytes"].text = std::string("\0\x1b\xff", 3);
  raw.files["/quoted"].text = "a: \"b\" # c\n\ttab\r\n'中文' \\n %";
  raw.files["/empty"].text = "";
  raw.files["/link"].link = "../x y";
  raw.files["/dev/nvidia0"].info =
      base::FileInfo{.kind = base::FileInfo::Kind::device, .mode = 0660, .gid = 44, .major = 195};
  raw.files["/dev/nvidia0"].open_error = EPERM;
  raw.files["/denied"].text = base::absent_from_errno(EACCES);
  raw.files["/denied"].info = base::absent_from_errno(EACCES);
  raw.files["/listed-not-readable"].info = base::FileInfo{};
  raw.files["/listed-not-readable"].text = base::absent_from_errno(EACCES);
  raw.files["/folder"].info = base::FileInfo{.kind = base::FileInfo::Kind::directory, .mode = 0755};
  raw.files["/missing"].info = base::absent_from_errno(ENOENT);
  raw.environment["CUDA_VISIBLE_DEVICES"] = "";
  raw.environment["null"] = "~";
  raw.nvml.init = base::absent(Absent::failed, "a \x1b[1m\"detail\"", -3);
  raw.cuda.devices.resize(1);
  raw.cuda.devices[0].launch_ms = 1e-7;
  raw.cuda.devices[0].memory_total_bytes = ~0ULL;
  raw.torch.warnings = {"two\nlines", "", "null", "8", "- x"};
  raw.target.log = {"line: 1", "", "  - indented"};
  raw.target.pid = 7;
  return raw;
}

TEST(SaveTest, WhatIsSavedLoadsAsItWas) {
  const TempFolder folder;
  const auto raw = recorded_machine();
  const auto saved = save_raw(raw, folder / "new");
  ASSERT_TRUE(saved) << saved.error().message;
  const auto again = load_raw(folder / "new");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(raw_to_yaml(*again), raw_to_yaml(raw));
  EXPECT_EQ(model::to_json(again->nvml), model::to_json(raw.nvml));
  EXPECT_EQ(model::to_json(again->torch), model::to_json(raw.torch));
  EXPECT_EQ(again->environment, raw.environment);
  EXPECT_EQ(again->target.log, raw.target.log);
}

TEST(SaveTest, FilesAnswerAfterwardsAsBefore) {
  const auto raw = recorded_machine();
  const auto again = parse_raw(raw_to_yaml(raw));
  ASSERT_TRUE(again) << again.error().message;
  const auto before = replay(raw);
  const auto after = replay(*again);
  for (const auto& [path, unused] : raw.files) {
    const auto& was = before->files().read(path);
    const auto& is = after->files().read(path);
    ASSERT_EQ(was.has_value(), is.has_value()) << path;
    if (was) {
      EXPECT_EQ(*was, *is) << path;
    }
    if (!was) {
      EXPECT_EQ(was.error(), is.error()) << path;
    }
    EXPECT_EQ(before->files().exists(path), after->files().exists(path)) << path;
    EXPECT_EQ(before->files().open_error(path), after->files().open_error(path)) << path;
    EXPECT_EQ(before->files().list(path).has_value(), after->files().list(path).has_value()) << path;
    EXPECT_EQ(before->files().read_link(path).value_or("none"), after->files().read_link(path).value_or("none"))
        << path;
  }
}

TEST(SaveTest, AFolderThatMayNotBeListedStaysSo) {
  RawMachine raw;
  raw.files["/proc/42/fd"].info = base::absent_from_errno(EACCES);
  const auto again = parse_raw(raw_to_yaml(raw));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(replay(*again)->files().list("/proc/42/fd").error().reason, Absent::no_permission);
}

TEST(SaveTest, OnlyTheOwnerMayReadIt) {
  const TempFolder folder;
  const auto previous = ::umask(0);
  ASSERT_TRUE(save_raw(RawMachine{}, folder / "new"));
  ::umask(previous);
  EXPECT_EQ(base::RealFiles().info(folder / "new/machine.yaml").value().mode, 0600U);
}

TEST(SaveTest, AnExistingMachineOrLinkIsNeverTouched) {
  const TempFolder folder;
  const auto precious = folder.write("taken/machine.yaml", "keep me");
  std::filesystem::create_directory(folder / "trap");
  std::filesystem::create_symlink(precious, folder / "trap/machine.yaml");
  folder.write("file", "");
  for (const auto* name : {"taken", "trap", "file", "file/below"}) {
    const auto saved = save_raw(RawMachine{}, folder / name);
    ASSERT_FALSE(saved) << name;
    EXPECT_FALSE(saved.error().remedy.empty()) << name;
  }
  EXPECT_EQ(read_all(precious), "keep me");
}

/// What a hostile or broken machine.yaml is refused with.
std::string refusal(const std::string& yaml) {
  const TempFolder folder;
  folder.write("m/machine.yaml", yaml);
  const auto raw = load_raw(folder / "m");
  EXPECT_FALSE(raw) << yaml.substr(0, 200);
  if (raw) return {};
  EXPECT_EQ(raw.error().kind, base::Error::Kind::bad_input);
  EXPECT_FALSE(raw.error().remedy.empty());
  return raw.error().message;
}

void expect_refusal(const std::string& yaml, const std::string& part) {
  const auto message = refusal(yaml);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(HostileMachineTest, HalfAFileIsRefused) {
  refusal(kBase.substr(0, kBase.find("name: second") + 3));
  refusal("schema: 1\nfiles: {/a: 'unfinished");
  refusal("schema: 1\n\t- tab");
  refusal("{");
}

TEST(HostileMachineTest, NothingAtAllIsRefused) {
  expect_refusal("", "not a mapping");
  expect_refusal("just text", "not a mapping");
  expect_refusal("[1, 2]", "not a mapping");
}

TEST(HostileMachineTest, AnUnknownSchemaIsRefused) {
  expect_refusal("about: x", "schema: the version of the format is missing");
  expect_refusal("schema: 2", "schema: version 2 is not known");
  expect_refusal("schema: '1'", "schema");
  expect_refusal("schema: -1", "schema");
}

TEST(HostileMachineTest, WrongTypesAreNamedWithTheirPlace) {
  expect_refusal("schema: 1\nnvml: text", "nvml: expected a mapping");
  expect_refusal("schema: 1\nsystem: {uid: many}", "system.uid: expected a whole number");
  expect_refusal("schema: 1\nsystem: {kernel: [1]}", "system.kernel: expected text");
  expect_refusal("schema: 1\nfiles: [1]", "files: expected a mapping of paths");
  expect_refusal("schema: 1\nfiles: {relative: x}", "is not an absolute path");
  expect_refusal("schema: 1\nfiles: {/a: [1]}", "expected the file's text or its properties");
  expect_refusal("schema: 1\nfiles: {/a: {colour: red}}", "no such property");
  expect_refusal("schema: 1\nfiles: {/a: {mode: '9'}}", "expected a number");
  expect_refusal("schema: 1\nfiles: {/a: {device: '195'}}", "expected MAJOR:MINOR");
  expect_refusal("schema: 1\nfiles: {/a: {open: EWHAT}}", "expected an error such as EACCES");
  expect_refusal("schema: 1\nfiles: {/a: {hex: zz}}", "broken hex");
  expect_refusal("schema: 1\nfiles: {/a: {kind: socket}}", "directory");
  expect_refusal("schema: 1\ntarget: {pid: x}", "target.pid");
  expect_refusal("schema: 1\ntarget: {colour: 1}", "no such field");
  expect_refusal("schema: 1\ntarget: 5", "target");
  expect_refusal("schema: 1\ncolour: 1", "colour: no such field");
  expect_refusal("schema: 1\nabout: x\nabout: y", "stands twice");
  expect_refusal("schema: 1\n? [a]\n: b", "a key that is not a plain name");
  expect_refusal("schema: 1\nexpect: {findings: none}", "expect.findings: expected a list");
}

TEST(HostileMachineTest, HugeNumbersAreRefused) {
  expect_refusal("schema: 1\nsystem: {uid: 4294967296}", "out of range");
  expect_refusal("schema: 1\nsystem: {uid: -1}", "out of range");
  expect_refusal("schema: 1\nsystem: {uid: 1e300}", "expected a whole number");
  expect_refusal("schema: 1\nsystem: {uid: 99999999999999999999999999}", "expected a whole number");
  expect_refusal("schema: 1\nfiles: {/a: {size: '-1'}}", "expected a number");
}

TEST(HostileMachineTest, AliasesThatMultiplyAreRefused) {
  std::string bomb = "schema: 1\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const auto before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int n = 0; n < 9; ++n) bomb += ", " + before;
    bomb += "]\n";
  }
  expect_refusal(bomb, "too many values");
}

TEST(HostileMachineTest, AnAliasToItselfIsRefused) {
  refusal("schema: 1\nfiles: &a {/x: *a}");
  refusal("schema: 1\nsystem: &a [*a]");
}

TEST(HostileMachineTest, DeepNestingIsRefused) {
  for (const std::size_t depth : {60U, 1000U, 100'000U}) {
    refusal("schema: 1\nsystem: " + std::string(depth, '[') + std::string(depth, ']'));
    std::string maps = "schema: 1\nsystem: ";
    for (std::size_t i = 0; i < depth; ++i) maps += "{a: ";
    refusal(maps + "1" + std::string(depth, '}'));
  }
}

TEST(HostileMachineTest, TooManyKeysAreRefusedBeforeTheyTakeMinutes) {
  std::string yaml = "schema: 1\nfiles:\n";
  for (int i = 0; i < 50'000; ++i) yaml += "  /f" + std::to_string(i) + ": x\n";
  expect_refusal(yaml, "more than 20,000 keys");
}

TEST(HostileMachineTest, NulBytesAreRefused) {
  expect_refusal(std::string("schema: 1\nabout: a\0b", 20), "NUL");
}

TEST(HostileMachineTest, AFileThatIsTooLargeIsRefused) {
  expect_refusal("schema: 1\nabout: " + std::string(32UL * 1024 * 1024, 'x'), "larger than 32 MiB");
}

TEST(HostileMachineTest, ControlCharactersDoNotReachTheMessage) {
  for (const auto* yaml :
       {"schema: 1\n\"\\e[31mred\": 1", "schema: 1\nfiles: {\"/\\e[2J\": [1]}", "schema: 1\nfiles: {\"\\e\": x}",
        "schema: 1\ntarget: {\"\\e[1m\": 1}", "schema: 1\nnvml: {\"\\e[1m\": 1}", "schema: 1\nbase: \"\\e\""}) {
    EXPECT_EQ(refusal(yaml).find('\x1b'), std::string::npos) << yaml;
  }
}

TEST(HostileMachineTest, ALinkOutOfTheFolderIsNotFollowed) {
  const TempFolder folder;
  folder.write("elsewhere.yaml", "schema: 1\nabout: secret\n");
  std::filesystem::create_directory(folder / "m");
  std::filesystem::create_symlink("../elsewhere.yaml", folder / "m/machine.yaml");
  const auto raw = load_raw(folder / "m");
  ASSERT_FALSE(raw);
  EXPECT_NE(raw.error().message.find("not a plain file"), std::string::npos);
}

TEST(HostileMachineTest, AFifoInPlaceOfTheFileDoesNotHang) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "m");
  ASSERT_EQ(::mkfifo((folder / "m/machine.yaml").c_str(), 0600), 0);
  EXPECT_FALSE(load_raw(folder / "m"));
}

TEST(HostileMachineTest, ABaseElsewhereIsRefused) {
  for (const auto* base : {"../other", "/etc", "a/b", ".", "..", "'a b'", "''", "Upper", "[a]", "7"}) {
    refusal(std::string("schema: 1\nbase: ") + base);
  }
}

TEST(HostileMachineTest, ABaseThatLeadsBackToItselfIsRefused) {
  const TempFolder folder;
  folder.write("one/machine.yaml", "schema: 1\nbase: two\n");
  folder.write("two/machine.yaml", "schema: 1\nbase: one\n");
  folder.write("self/machine.yaml", "schema: 1\nbase: self\n");
  EXPECT_FALSE(load_raw(folder / "one"));
  const auto self = load_raw(folder / "self");
  ASSERT_FALSE(self);
  EXPECT_NE(self.error().message.find("more than four bases"), std::string::npos);
}

TEST(HostileMachineTest, AMissingFolderFileOrBaseIsAClearError) {
  const TempFolder folder;
  folder.write("patient/machine.yaml", "schema: 1\nbase: nowhere\n");
  folder.write("plain", "");
  std::filesystem::create_directory(folder / "empty");
  for (const auto* name : {"none", "plain", "empty", "patient"}) {
    const auto raw = load_raw(folder / name);
    ASSERT_FALSE(raw) << name;
    EXPECT_FALSE(raw.error().message.empty());
    EXPECT_FALSE(raw.error().remedy.empty());
  }
}

TEST(RecordingWorldTest, SecretsInAProcessesEnvironmentAreNotKept) {
  RawMachine raw;
  raw.files["/proc/42/status"].text = "Name:\tpython\n";
  raw.files["/proc/42/environ"].text =
      std::string("HF_TOKEN=abc\0CUDA_VISIBLE_DEVICES=1\0AWS_SECRET_ACCESS_KEY=def\0EDITOR=vi\0", 72);
  raw.target.pid = 42;
  const auto recording = std::make_shared<RecordingWorld>(replay(raw));
  const auto machine = examine(recording, raw.target);
  ASSERT_TRUE(machine.process);
  EXPECT_EQ(machine.process->environment, (base::Environment{{"CUDA_VISIBLE_DEVICES", "1"}}));
  const auto kept = recording->recorded(raw.target).files.at("/proc/42/environ").text;
  ASSERT_TRUE(kept);
  EXPECT_EQ(*kept, std::string("CUDA_VISIBLE_DEVICES=1\0", 23));
}

TEST(RecordingWorldTest, AReplayOfARecordingExaminesToTheSameMachine) {
  const auto raw = load_raw(std::string(FULLWATT_PATIENTS) + "/laptop-rtx4050-intel");
  ASSERT_TRUE(raw) << raw.error().message;
  const auto recording = std::make_shared<RecordingWorld>(replay(*raw));
  const auto machine = examine(recording, raw->target);
  const auto again = parse_raw(raw_to_yaml(recording->recorded(raw->target)));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(model::dump(model::to_json(examine(replay(*again), again->target)), 1),
            model::dump(model::to_json(machine), 1));
}

}  // namespace
}  // namespace fullwatt::doctor
