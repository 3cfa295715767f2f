// Which GPUs a process gets to see: CUDA_VISIBLE_DEVICES, the order of the devices, MIG.

#include <algorithm>
#include <array>
#include <set>

#include "catalog/catalog.hpp"
#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/doctor/rules/rule.hpp"
#include "fullwatt/doctor/rules/torch_facts.hpp"

namespace fullwatt::doctor {
namespace {

using model::Machine;
using model::NvmlDevice;
using model::Severity;

constexpr const char* kVariable = "CUDA_VISIBLE_DEVICES";

/// One entry of CUDA_VISIBLE_DEVICES. libcuda stops reading at the first one that is not valid.
struct Entry {
  std::string text;
  std::optional<int> index;

  bool is_uuid() const { return text.starts_with("GPU-") || text.starts_with("MIG-"); }
  /// "", "-1", "NoDevFiles": ends the list on purpose.
  bool is_nothing() const { return !is_uuid() && (!index || *index < 0); }
};

std::vector<Entry> entries_of(std::string_view value) {
  std::vector<Entry> entries;
  for (auto part : base::split(value, ',')) {
    const auto text = base::trim(part);
    entries.push_back({std::string(text), base::number<int>(text)});
  }
  return entries;
}

std::size_t slice_count(const Machine& machine) {
  std::size_t count = 0;
  for (const auto& device : machine.nvml.devices) count += device.mig_slices.size();
  return count;
}

/// How many devices CUDA could number here; 0 when unknown. MIG slices are numbered instead of their GPU.
std::size_t device_count(const Machine& machine) {
  if (machine.nvml.works()) return std::max(machine.nvml.devices.size(), slice_count(machine));
  return machine.driver.container.inside() ? 0 : machine.hardware.nvidia().size();
}

bool cuda_was_asked(const Machine& machine) {
  return machine.cuda.answers.init.has_value();
}

bool repeats(const std::vector<Entry>& entries) {
  std::set<std::string> seen;
  return !std::ranges::all_of(entries, [&](const auto& entry) { return seen.insert(entry.text).second; });
}

std::optional<Match> cvd_hides_all(const Machine& machine) {
  const auto value = machine.variable(kVariable);
  if (!value || device_count(machine) == 0 || machine.cuda.works()) return std::nullopt;
  const auto entries = entries_of(*value);
  // A device named twice makes the whole list void.
  if (!entries.front().is_nothing() && !repeats(entries)) return std::nullopt;
  const auto shown = base::printable(*value, 120);
  Match match;
  match.fact("value", shown).saw(kVariable, fmt::format("\"{}\"", shown), environment_source(machine));
  match.saw("GPUs in this machine", std::to_string(device_count(machine)));
  return match;
}

/// The first entry that names something which is not there, when the ones before it are fine.
struct Broken {
  std::size_t at;
  Entry entry;
};

template <class IsBad>
std::optional<Broken> first_broken(const Machine& machine, IsBad is_bad) {
  const auto value = machine.variable(kVariable);
  if (!value) return std::nullopt;
  const auto entries = entries_of(*value);
  const auto at = std::ranges::find_if(entries, [&](const auto& entry) { return entry.is_nothing() || is_bad(entry); });
  if (at == entries.end() || at->is_nothing()) return std::nullopt;
  const auto before = static_cast<std::size_t>(at - entries.begin());
  if (cuda_was_asked(machine) && machine.cuda.answers.devices.size() > before) return std::nullopt;
  return Broken{before, *at};
}

/// Where entries before the broken one remain, CUDA works with fewer GPUs than were asked for.
Match broken_match(const Machine& machine, const Broken& broken) {
  const auto shown = base::printable(machine.variable(kVariable).value_or(""), 200);
  Match match;
  match.fact("value", shown).saw(kVariable, shown, environment_source(machine));
  if (broken.at > 0) {
    match.saw("first entry that is not valid", broken.entry.text);
    match.severity = Severity::warning;
  }
  return match;
}

std::optional<Match> cvd_index_out_of_range(const Machine& machine) {
  const auto count = device_count(machine);
  if (count == 0) return std::nullopt;
  const auto bad = [&](const Entry& entry) { return entry.index && static_cast<std::size_t>(*entry.index) >= count; };
  const auto broken = first_broken(machine, bad);
  if (!broken) return std::nullopt;
  auto match = broken_match(machine, *broken);
  match.fact("count", std::to_string(count)).saw("GPUs in this machine", std::to_string(count));
  return match;
}

/// Every UUID that may stand in the variable; empty when one of them cannot be read.
std::vector<std::string> known_uuids(const Machine& machine) {
  std::vector<std::string> uuids;
  for (const auto& device : machine.nvml.devices) {
    if (!device.uuid) return {};
    uuids.push_back(*device.uuid);
    for (const auto& slice : device.mig_slices) uuids.push_back(slice.uuid);
  }
  return uuids;
}

std::optional<Match> cvd_bad_uuid(const Machine& machine) {
  const auto uuids = known_uuids(machine);
  if (uuids.empty()) return std::nullopt;
  const auto bad = [&](const Entry& entry) {
    // "MIG-GPU-…/1/0" is the form of drivers before 470; NVML no longer lists it.
    if (!entry.is_uuid() || entry.text.starts_with("MIG-GPU-")) return false;
    return std::ranges::count_if(
               uuids, [&](const auto& uuid) { return base::lower(uuid).starts_with(base::lower(entry.text)); }) != 1;
  };
  const auto broken = first_broken(machine, bad);
  if (!broken) return std::nullopt;
  auto match = broken_match(machine, *broken);
  for (const auto& uuid : uuids) match.saw("UUID in this machine", uuid);
  return match;
}

bool holds(const NvmlDevice& device, int pid) {
  return device.processes && std::ranges::any_of(*device.processes, [&](const auto& p) { return p.pid == pid; });
}

/// Whether the entries admit this GPU, by NVML's number, by CUDA's, or by UUID: generous, because scripts also set the
/// order.
bool admits(const std::vector<Entry>& entries, const model::GpuIdentity& gpu) {
  return std::ranges::any_of(entries, [&](const Entry& entry) {
    if (entry.is_uuid()) return gpu.uuid.starts_with(entry.text);
    return entry.index && (gpu.nvml_index == entry.index || gpu.cuda_ordinal == entry.index);
  });
}

std::optional<Match> cvd_set_too_late(const Machine& machine) {
  const auto& process = *machine.process;
  if (process.environment.contains(kVariable) || !process.visible_devices_in_code) return std::nullopt;
  const auto entries = entries_of(*process.visible_devices_in_code);
  Match match;
  for (const auto& device : machine.nvml.devices) {
    const auto* gpu = machine.gpu_by_bdf(device.bdf.value_or(""));
    if (gpu == nullptr || !holds(device, process.pid) || admits(entries, *gpu)) continue;
    match.about(machine, gpu->bdf)
        .saw("GPU in use", machine.gpu_label(gpu->bdf), fmt::format("NVML index {}", device.index));
  }
  if (match.evidence.empty()) return std::nullopt;
  match.fact("pid", std::to_string(process.pid));
  match.saw(kVariable, base::printable(*process.visible_devices_in_code, 120), "the script of the process");
  match.saw(kVariable, "not set", environment_source(machine));
  return match;
}

bool gpus_differ(const Machine& machine) {
  std::set<std::string> names;
  for (const auto& device : machine.nvml.devices) names.insert(device.name.value_or(""));
  return names.size() > 1;
}

/// NVML's numbers of the devices in CUDA's order; empty where they cannot be matched.
std::vector<int> nvml_order(const Machine& machine) {
  std::vector<int> order;
  for (const auto& device : machine.cuda.answers.devices) {
    const auto* known = machine.nvml_by_bdf(device.bdf);
    if (known == nullptr || known->mig_enabled.is(true)) return {};
    order.push_back(known->index);
  }
  return order;
}

/// The numbers a user expects by nvidia-smi: those of CUDA_VISIBLE_DEVICES, else rising ones. Empty: chosen by UUID.
std::vector<int> expected_order(const Machine& machine, std::vector<int> order) {
  const auto value = machine.variable(kVariable);
  if (!value) {
    std::ranges::sort(order);
    return order;
  }
  std::vector<int> expected;
  for (const auto& entry : entries_of(*value)) {
    if (!entry.index || *entry.index < 0) return {};
    expected.push_back(*entry.index);
  }
  return expected.size() == order.size() ? expected : std::vector<int>{};
}

std::optional<Match> device_order_mismatch(const Machine& machine) {
  const auto setting = machine.variable("CUDA_DEVICE_ORDER");
  if (setting == "PCI_BUS_ID" || !gpus_differ(machine)) return std::nullopt;
  const auto order = nvml_order(machine);
  const auto expected = expected_order(machine, order);
  const auto [at, unused] = std::ranges::mismatch(order, expected);
  if (expected.empty() || at == order.end()) return std::nullopt;
  Match match;
  const auto& first = machine.cuda.answers.devices[static_cast<std::size_t>(at - order.begin())];
  match.fact("value", std::to_string(first.ordinal)).about(machine, first.bdf);
  match.saw("CUDA_DEVICE_ORDER", setting.value_or("not set"), environment_source(machine));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto& device = machine.cuda.answers.devices[i];
    match.saw(fmt::format("cuda:{}", device.ordinal), machine.gpu_label(device.bdf),
              fmt::format("NVML index {}", order[i]));
  }
  return match;
}

bool mig_without_slice(const NvmlDevice& device) {
  return device.mig_enabled.is(true) && device.mig_slices.empty();
}

bool mig_changes(const NvmlDevice& device) {
  return device.mig_enabled && device.mig_pending && *device.mig_enabled != *device.mig_pending;
}

/// Silent while MIG is being switched off: then the reset is what is missing.
std::optional<Match> mig_on_no_instance(const Machine& machine) {
  Match match;
  for (const auto& device : machine.nvml.devices) {
    if (!mig_without_slice(device) || mig_changes(device)) continue;
    const auto bdf = device.bdf.value_or("");
    match.about(machine, bdf).saw("MIG mode", "on, 0 instances", machine.gpu_label(bdf));
  }
  if (match.evidence.empty()) return std::nullopt;
  if (machine.cuda.works()) match.severity = Severity::warning;
  return match;
}

std::optional<Match> mig_pending(const Machine& machine) {
  Match match;
  for (const auto& device : machine.nvml.devices) {
    if (!mig_changes(device)) continue;
    const auto bdf = device.bdf.value_or("");
    const auto* change = *device.mig_pending ? "off, on after a reset" : "on, off after a reset";
    match.about(machine, bdf).saw("MIG mode", change, machine.gpu_label(bdf));
    if (mig_without_slice(device) && cuda_was_asked(machine) && !machine.cuda.works()) match.severity = Severity::error;
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

/// Not where the variable already gives this process one slice of its own.
std::optional<Match> mig_one_per_process(const Machine& machine) {
  const auto slices = slice_count(machine);
  const auto value = machine.variable(kVariable);
  if (slices < 2 || machine.cuda.answers.devices.size() != 1) return std::nullopt;
  if (value && entries_of(*value).size() == 1) return std::nullopt;
  Match match;
  match.fact("count", std::to_string(slices)).saw("devices CUDA lists", "1");
  for (const auto& device : machine.nvml.devices) {
    for (const auto& slice : device.mig_slices)
      match.saw("MIG slice", slice.uuid, machine.gpu_label(device.bdf.value_or("")));
  }
  return match;
}

/// torch 1.13 and 2.0 count through NVML and do not know MIG's UUIDs.
std::optional<Match> mig_uuid_parse_bug(const Machine& machine) {
  const auto& answers = machine.torch.answers;
  const base::Version version(answers.version.value_or(""));
  const bool affected =
      (version.major() == 1 && version.minor() == 13) || (version.major() == 2 && version.minor() == 0);
  if (!affected || slice_count(machine) == 0 || !machine.cuda.works() || !answers.device_count.is(0))
    return std::nullopt;
  const auto& device = machine.cuda.answers.devices.front();
  Match match;
  match.fact("torch", *answers.version);
  match.fact("index_tag",
             std::string(catalog::wheel_for(machine.driver.version.value_or(""), device.compute_capability)));
  match.saw("torch.cuda.device_count()", "0", answers.file).saw("PyTorch", *answers.version);
  match.saw("devices CUDA lists", std::to_string(machine.cuda.answers.devices.size()));
  return match;
}

constexpr std::array kRules{
    Rule{"cvd-hides-all", kNothing, cvd_hides_all},
    Rule{"cvd-index-out-of-range", kNothing, cvd_index_out_of_range},
    Rule{"cvd-bad-uuid", kNvml, cvd_bad_uuid},
    Rule{"cvd-set-too-late", kProcess | kNvml, cvd_set_too_late},
    Rule{"device-order-mismatch", kNvml | kCuda, device_order_mismatch},
    Rule{"mig-on-no-instance", kNvml, mig_on_no_instance},
    Rule{"mig-pending", kNvml, mig_pending},
    Rule{"mig-one-per-process", kNvml | kCuda, mig_one_per_process},
    Rule{"mig-uuid-parse-bug", kNvml | kTorch, mig_uuid_parse_bug},
};

}  // namespace

std::span<const Rule> cuda_visibility_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
