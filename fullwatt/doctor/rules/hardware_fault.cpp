// Layer 1: memory, firmware and links of a GPU that report a fault.

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "fullwatt/base/pattern.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/rules/gpu_state.hpp"
#include "fullwatt/doctor/rules/rule.hpp"

namespace fullwatt::doctor {
namespace {

using model::Machine;
using model::NvmlDevice;
using model::Severity;

/// Adds the GPUs on which a context or a kernel failed with this code.
void saw_cuda_code(Match& match, const Machine& machine, int code, const std::string& name) {
  for (const auto& device : machine.cuda.answers.devices) {
    if (!device.context.is(code) && !device.launch.is(code)) continue;
    match.about(machine, device.bdf);
    match.saw(device.context.is(code) ? "creating a context" : "running a kernel", fmt::format("{} {}", code, name),
              device.bdf);
  }
}

std::optional<Match> ecc_uncorrectable(const Machine& machine) {
  Match match;
  bool usable = true;
  for (const auto& device : machine.nvml.devices) {
    if (device.ecc_uncorrected.value_or(0) == 0) continue;
    name_device(match, machine, device);
    match.saw("uncorrectable ECC errors since the driver was loaded", std::to_string(*device.ecc_uncorrected),
              fmt::format("NVML device {}", device.index));
    usable = usable && works_now(machine, address_of(machine, device));
  }
  const auto counted = match.evidence.size();
  saw_cuda_code(match, machine, model::cuda_code::kEccUncorrectable, "ECC_UNCORRECTABLE");
  const auto logged = xids(machine, {48, 94, 95, 140, 171, 172});
  usable = usable && match.evidence.size() == counted && over(machine, "ecc-uncorrectable", logged);
  if (usable) match.severity = Severity::warning;
  saw_xids(match, machine, logged);
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

/// Lines about this GPU are out of date once NVML denies them: a reset has done the exchange.
std::optional<Match> awaits_reset(const Machine& machine, base::Reading<bool> NvmlDevice::* pending,
                                  std::initializer_list<std::string_view> texts) {
  Match match;
  for (const auto& device : machine.nvml.devices) {
    if (!(device.*pending).is(true)) continue;
    name_device(match, machine, device);
    match.saw("pending", "yes", fmt::format("NVML device {}", device.index));
  }
  for (const auto& xid : xids(machine, {63, 64})) {
    const auto* device = machine.nvml_by_bdf(xid.bdf);
    const bool denied = device != nullptr && (device->*pending).is(false);
    const bool fits = std::ranges::any_of(texts, [&](auto text) { return base::contains(xid.line, text); });
    if (!denied && fits) saw_xids(match, machine, {xid});
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

std::optional<Match> row_remap_pending(const Machine& machine) {
  return awaits_reset(machine, &NvmlDevice::remap_pending, {"Row Remapper: New row", "already pending remapping"});
}

std::optional<Match> row_remap_failed(const Machine& machine) {
  Match match;
  for (const auto& device : machine.nvml.devices) {
    if (!device.remap_failed.is(true)) continue;
    name_device(match, machine, device);
    match.saw("row remapping failed", "yes", fmt::format("NVML device {}", device.index));
    if (device.remapped_rows) match.saw("rows exchanged so far", std::to_string(*device.remapped_rows), "NVML");
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

std::optional<Match> retired_pages_pending(const Machine& machine) {
  return awaits_reset(machine, &NvmlDevice::retired_pages_pending, {"Dynamic Page Retirement: New"});
}

std::optional<Match> gsp_rpc_timeout(const Machine& machine) {
  const auto logged = xids(machine, {119, 120});
  Match match;
  if (over(machine, "gsp-rpc-timeout", logged)) match.severity = Severity::warning;
  return saw_xids(match, machine, logged) ? std::optional(match) : std::nullopt;
}

std::string action_text(int action) {
  constexpr std::array kActions{
      "none", "reset the GPU", "reboot", "drain peer traffic", "drain and reset", "recover the IMEX domain"};
  const auto known = action >= 0 && static_cast<std::size_t>(action) < kActions.size();
  return known ? kActions[static_cast<std::size_t>(action)] : fmt::format("action {}", action);
}

/// The last word of the log about each GPU, for drivers whose NVML does not tell.
void saw_logged_action(Match& match, const Machine& machine) {
  std::map<std::string, Xid> last;
  for (const auto& xid : xids(machine, {154})) last.insert_or_assign(xid.bdf, xid);
  for (const auto& [bdf, xid] : last) {
    const auto* device = machine.nvml_by_bdf(bdf);
    const bool done = works_now(machine, bdf) || (device != nullptr && device->recovery_action.is(0));
    const auto asked = base::match("recovery action changed from * to {action}", xid.line);
    if (!done && asked && asked->at("action") != "0x0") saw_xids(match, machine, {xid});
  }
}

std::optional<Match> gpu_reset_required(const Machine& machine) {
  Match match;
  for (const auto& device : machine.nvml.devices) {
    if (device.recovery_action.value_or(0) == 0) continue;
    name_device(match, machine, device);
    match.saw("recovery the driver asks for", action_text(*device.recovery_action),
              fmt::format("NVML device {}", device.index));
  }
  saw_code(match, machine, model::nvml_code::kResetRequired);
  saw_logged_action(match, machine);
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

/// Links that recovered by themselves are worth a note.
std::optional<Match> nvlink_error(const Machine& machine) {
  Match match;
  saw_cuda_code(match, machine, model::cuda_code::kNvlinkUncorrectable, "NVLINK_UNCORRECTABLE");
  const auto logged = xids(machine, {74, 136, 144, 145, 146, 147, 148, 149, 150, 155});
  if (match.evidence.empty() && over(machine, "nvlink-error", logged)) {
    const auto mild = [](const Xid& xid) { return base::contains(xid.line, " Nonfatal "); };
    match.severity = std::ranges::all_of(logged, mild) ? Severity::note : Severity::warning;
  }
  saw_xids(match, machine, logged);
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

std::optional<Match> inforom_corrupted(const Machine& machine) {
  Match match;
  return saw_code(match, machine, model::nvml_code::kCorruptedInforom) ? std::optional(match) : std::nullopt;
}

constexpr std::array kRules{
    Rule{"ecc-uncorrectable", kNothing, ecc_uncorrectable},
    Rule{"row-remap-pending", kNothing, row_remap_pending},
    Rule{"row-remap-failed", kNvml, row_remap_failed},
    Rule{"retired-pages-pending", kNothing, retired_pages_pending},
    Rule{"gsp-rpc-timeout", kKernelLog, gsp_rpc_timeout},
    Rule{"gpu-reset-required", kNothing, gpu_reset_required},
    Rule{"nvlink-error", kNothing, nvlink_error},
    Rule{"inforom-corrupted", kNvml, inforom_corrupted},
};

}  // namespace

std::span<const Rule> hardware_fault_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
