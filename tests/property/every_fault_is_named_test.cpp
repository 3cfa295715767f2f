// P8: for any GPU problem the diagnosis names the root cause and a concrete remedy.

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string>

#include "tests/support/machines.hpp"
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/diagnose.hpp"
#include "fullwatt/doctor/probe/examine.hpp"
#include "fullwatt/doctor/probe/raw.hpp"
#include "fullwatt/doctor/select.hpp"
#include "fullwatt/show/doctor.hpp"
#include "fullwatt/show/words.hpp"

namespace fullwatt::doctor {
namespace {

using base::Absent;
using model::Diagnosis;
using model::Machine;

const std::vector<std::string>& patients() {
  static const auto all = [] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(FULLWATT_PATIENTS)) {
      if (std::filesystem::exists(entry.path() / "machine.yaml")) names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }();
  return all;
}

/// The machine of a patient; one that cannot be read fails a test of its own, here it stands for a healthy one.
const Machine& machine_of(const std::string& patient) {
  static std::map<std::string, Machine> known;
  const auto [at, fresh] = known.try_emplace(patient);
  if (fresh) {
    const auto raw = load_raw(std::string(FULLWATT_PATIENTS) + "/" + patient);
    at->second = raw ? examine(replay(*raw), raw->target) : tests::machine_with_gpu();
  }
  return at->second;
}

bool maybe() {
  return *rc::gen::arbitrary<bool>();
}

int random_code() {
  return *rc::gen::oneOf(
      rc::gen::element(0, 3, 4, 9, 12, 15, 16, 17, 18, 28, 34, 46, 100, 101, 209, 222, 304, 719, 802, 803, 804, 999),
      rc::gen::inRange(-5, 1100), rc::gen::arbitrary<int>());
}

std::string random_text() {
  return *rc::gen::oneOf(rc::gen::arbitrary<std::string>(),
                         rc::gen::element<std::string>(
                             "", "NVRM: Xid (PCI:0000:01:00): 79,", "\x1b[31m", "580.95.05", "{gpu}", "-1", "9.0",
                             "GPU-1", "0,1", "CUDA error: out of memory", "<unknown>", "/usr/lib/libcuda.so.1"));
}

base::Absence random_absence() {
  const auto reason = *rc::gen::element(Absent::not_asked, Absent::not_there, Absent::unsupported,
                                        Absent::no_permission, Absent::asleep, Absent::timed_out, Absent::failed);
  return base::absent(reason, random_text(), random_code());
}

std::vector<std::string> random_lines() {
  std::vector<std::string> lines;
  const int count = *rc::gen::inRange(0, 4);
  for (int i = 0; i < count; ++i) lines.push_back(random_text());
  return lines;
}

/// Takes away or falsifies the readings of a struct, whatever they are.
struct Vandal {
  void operator()(const char*, base::Reading<int>& reading) const {
    spoil(reading, [] { return random_code(); });
  }
  void operator()(const char*, base::Reading<bool>& reading) const {
    spoil(reading, [] { return maybe(); });
  }
  void operator()(const char*, base::Reading<std::string>& reading) const {
    spoil(reading, [] { return random_text(); });
  }
  void operator()(const char*, base::Reading<std::uint64_t>& reading) const {
    spoil(reading, [] {
      return *rc::gen::oneOf(rc::gen::element(std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()),
                             rc::gen::arbitrary<std::uint64_t>());
    });
  }
  void operator()(const char*, std::string& text) const {
    if (*rc::gen::inRange(0, 12) == 0) text = random_text();
  }
  void operator()(const char*, std::vector<std::string>& lines) const {
    if (*rc::gen::inRange(0, 12) == 0) lines = random_lines();
  }
  void operator()(const char*, auto&) const {}

 private:
  template <class T, class Make>
  static void spoil(base::Reading<T>& reading, Make make) {
    const int fate = *rc::gen::inRange(0, 16);
    if (fate == 0) reading = random_absence();
    if (fate == 1) reading = make();
  }
};

template <class T>
void vandalise(T& record) {
  T::fields(record, Vandal{});
}

using Breakage = std::function<void(Machine&)>;

const std::vector<Breakage>& breakages() {
  static const std::vector<Breakage> all{
      [](Machine& m) { m.cuda.answers.init = random_code(); },
      [](Machine& m) { m.cuda.answers.init = random_absence(); },
      [](Machine& m) { m.cuda.answers.devices.clear(); },
      [](Machine& m) {
        for (auto& device : m.cuda.answers.devices) device.launch = random_code();
      },
      [](Machine& m) {
        for (auto& device : m.cuda.answers.devices) device.context = random_code();
      },
      [](Machine& m) {
        for (auto& device : m.cuda.answers.devices) vandalise(device);
      },
      [](Machine& m) { m.nvml.init = random_code(); },
      [](Machine& m) { m.nvml.init = random_absence(); },
      [](Machine& m) { m.nvml.devices.clear(); },
      [](Machine& m) {
        for (auto& device : m.nvml.devices) vandalise(device);
      },
      [](Machine& m) {
        for (auto& device : m.nvml.devices) device.handle_code = random_code();
      },
      [](Machine& m) { m.torch.answers.available = false; },
      [](Machine& m) { m.torch.answers.available = random_absence(); },
      [](Machine& m) { m.torch.answers.version = random_absence(); },
      [](Machine& m) {
        for (auto& device : m.torch.answers.devices) device.operation = random_text();
      },
      [](Machine& m) { vandalise(m.torch.answers); },
      [](Machine& m) { vandalise(m.torch); },
      [](Machine& m) { vandalise(m.driver); },
      [](Machine& m) { vandalise(m.driver.container); },
      [](Machine& m) { m.driver.loaded = maybe(); },
      [](Machine& m) { m.driver.nodes.clear(); },
      [](Machine& m) { m.driver.services.clear(); },
      [](Machine& m) { m.driver.kernel_log = random_lines(); },
      [](Machine& m) { m.driver.kernel_log = random_absence(); },
      [](Machine& m) { vandalise(m.hardware); },
      [](Machine& m) {
        for (auto& gpu : m.hardware.gpus) vandalise(gpu);
      },
      [](Machine& m) { m.hardware.gpus.clear(); },
      [](Machine& m) { m.gpus.clear(); },
      [](Machine& m) { m.cuda.libcuda.clear(); },
      [](Machine& m) { vandalise(m.host); },
      [](Machine& m) { vandalise(m.host.system); },
      [](Machine& m) { m.host.environment["CUDA_VISIBLE_DEVICES"] = random_text(); },
      [](Machine& m) { m.host.environment["LD_LIBRARY_PATH"] = random_text(); },
      [](Machine& m) { m.log = random_lines(); },
      [](Machine& m) {
        m.process.emplace();
        vandalise(*m.process);
      },
      [](Machine& m) { m.problems = {{"nvml", random_text()}}; },
  };
  return all;
}

Machine broken_machine() {
  auto machine = machine_of(*rc::gen::elementOf(patients()));
  const int count = *rc::gen::inRange(1, 6);
  for (int i = 0; i < count; ++i) (*rc::gen::elementOf(breakages()))(machine);
  return machine;
}

/// Whether CUDA or PyTorch has said that it cannot use an NVIDIA GPU that is there.
bool gpu_is_out_of_use(const Machine& machine) {
  if (machine.hardware.nvidia().empty()) return false;
  const auto& cuda = machine.cuda.answers;
  if (cuda.init && (*cuda.init != 0 || cuda.devices.empty())) return true;
  const auto fails = [](const auto& device) { return device.launch && *device.launch != 0; };
  if (cuda.init && std::ranges::any_of(cuda.devices, fails)) return true;
  return machine.torch.answers.version && machine.torch.answers.available.is(false);
}

void require_words(const Diagnosis& diagnosis) {
  RC_ASSERT(!diagnosis.root_cause.empty());
  const auto* root = diagnosis.find(diagnosis.root_cause);
  RC_ASSERT(root != nullptr);
  RC_ASSERT(root->severity == model::Severity::error);
  RC_ASSERT(root->consequence_of.empty());
  for (const auto language : {catalog::Language::en, catalog::Language::zh}) {
    const auto words = show::render(*root, language);
    RC_ASSERT(!words.title.empty());
    RC_ASSERT(!words.cause.empty());
    RC_ASSERT(!words.remedy.empty());
  }
}

RC_GTEST_PROP(EveryFaultIsNamedTest, AGpuOutOfUseHasARootCauseAndARemedy, ()) {
  const auto machine = broken_machine();
  const auto diagnosis = diagnose(machine);
  RC_CLASSIFY(gpu_is_out_of_use(machine), "out of use");
  if (gpu_is_out_of_use(machine)) require_words(diagnosis);
}

RC_GTEST_PROP(EveryFaultIsNamedTest, NoRuleBreaksOnAnyMachine, ()) {
  const auto diagnosis = diagnose(broken_machine());
  for (const auto& check : diagnosis.checks) RC_ASSERT(check.status != model::CheckResult::Status::broken);
}

RC_GTEST_PROP(EveryFaultIsNamedTest, FindingsHangTogether, ()) {
  const auto diagnosis = diagnose(broken_machine());
  for (const auto& finding : diagnosis.findings) {
    RC_ASSERT(catalog::find(finding.id) != nullptr);
    RC_ASSERT(!finding.evidence.empty());
    RC_ASSERT(finding.consequence_of.empty() || diagnosis.find(finding.consequence_of) != nullptr);
    RC_ASSERT(finding.consequence_of != finding.id);
  }
}

/// Text without control characters, in UTF-8.
bool is_clean(std::string text) {
  std::erase(text, '\n');
  for (auto at = text.find("\uFFFD"); at != std::string::npos; at = text.find("\uFFFD")) text.erase(at, 3);
  return base::printable(text, text.size() + 1) == text;
}

RC_GTEST_PROP(EveryFaultIsNamedTest, EveryMachineCanBeShown, ()) {
  show::DoctorReport report;
  report.machine = broken_machine();
  report.diagnosis = diagnose(report.machine);
  RC_ASSERT(is_clean(show::doctor_text(report, {.color = false, .unicode = true, .width = 80}, true)));
  RC_ASSERT(is_clean(show::doctor_html(report, catalog::Language::zh)));
  RC_ASSERT(is_clean(show::doctor_markdown(report, catalog::Language::en)));
  RC_ASSERT(model::Json::accept(model::dump(show::doctor_json(report, catalog::Language::en))));
  RC_ASSERT(!select_gpu(report.machine).reason.empty());
}

}  // namespace
}  // namespace fullwatt::doctor
