#include "fullwatt/doctor/rules/gpu_state.hpp"

#include <algorithm>
#include <set>

#include "catalog/catalog.hpp"
#include <fmt/format.h>

#include "fullwatt/base/pattern.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/rules/driver_facts.hpp"

namespace fullwatt::doctor {
namespace {

using model::Machine;
using model::NvmlDevice;

/// "0000:01:00" of an Xid, or "0000:01:00 GPU-I:05" on a MIG slice, as the whole address.
std::string whole_address(const Machine& machine, std::string_view text) {
  const std::string address(text.substr(0, text.find(' ')));
  const auto at = std::ranges::find_if(machine.gpus, [&](const auto& gpu) { return gpu.bdf.starts_with(address); });
  return at != machine.gpus.end() ? at->bdf : address + ".0";
}

std::optional<Xid> parse_xid(const Machine& machine, const std::string& line) {
  const auto captures = base::match("NVRM: Xid (PCI:{bdf}): {number},", line);
  if (!captures) return std::nullopt;
  const auto number = base::number<int>(captures->at("number"));
  if (!number) return std::nullopt;
  return Xid{whole_address(machine, captures->at("bdf")), *number, line};
}

/// The PCI addresses of NVIDIA GPUs that no device of NVML claims, in the order of the bus.
std::vector<std::string> unclaimed(const Machine& machine) {
  std::vector<std::string> addresses;
  for (const auto* gpu : machine.hardware.nvidia()) {
    if (machine.nvml_by_bdf(gpu->bdf) == nullptr) addresses.push_back(gpu->bdf);
  }
  return addresses;
}

/// Libraries alone are also installed where there never was a GPU.
bool module_installed(const Machine& machine) {
  const auto& driver = machine.driver;
  return driver.loaded || !driver.module_files.empty() || !driver.module_other_kernels.empty();
}

}  // namespace

std::vector<std::string> kernel_lines(const Machine& machine, std::string_view part) {
  std::vector<std::string> found;
  if (!machine.driver.kernel_log) return found;
  std::ranges::copy_if(*machine.driver.kernel_log, std::back_inserter(found),
                       [&](const auto& line) { return base::contains(line, part); });
  return found;
}

std::vector<Xid> xids(const Machine& machine, std::initializer_list<int> numbers) {
  std::vector<Xid> found;
  for (const auto& line : kernel_lines(machine, "NVRM: Xid (PCI:")) {
    const auto xid = parse_xid(machine, line);
    if (xid && std::ranges::find(numbers, xid->number) != numbers.end()) found.push_back(*xid);
  }
  return found;
}

void saw_line(Match& match, const std::string& line) {
  match.saw("message", base::printable(base::trim(line), 300), "kernel log");
}

bool saw_xids(Match& match, const Machine& machine, const std::vector<Xid>& found) {
  std::set<std::string> named;
  for (const auto& xid : found) {
    if (!named.insert(xid.bdf).second) continue;
    match.about(machine, xid.bdf);
    saw_line(match, xid.line);
  }
  return !found.empty();
}

std::string address_of(const Machine& machine, const NvmlDevice& device) {
  if (device.bdf) return *device.bdf;
  const auto free = unclaimed(machine);
  std::size_t position = 0;
  for (const auto& other : machine.nvml.devices) {
    if (other.index == device.index) break;
    if (!other.bdf) ++position;
  }
  return position < free.size() ? free[position] : std::string{};
}

void name_device(Match& match, const Machine& machine, const NvmlDevice& device) {
  match.fact("index", std::to_string(device.index));
  const auto address = address_of(machine, device);
  if (!address.empty()) match.about(machine, address);
  match.fact("gpu", fmt::format("GPU {}", device.index));
}

std::optional<std::string> answered_with(const NvmlDevice& device, int code) {
  if (device.handle_code == code) return "getting the device";
  std::optional<std::string> found;
  NvmlDevice::fields(device, [&](const char* name, const auto& field) {
    if constexpr (requires { field.error().code; }) {
      if (!found && !field.has_value() && field.error().code == code) found = name;
    }
  });
  return found;
}

bool saw_code(Match& match, const Machine& machine, int code) {
  bool any = false;
  for (const auto& device : machine.nvml.devices) {
    const auto question = answered_with(device, code);
    if (!question) continue;
    name_device(match, machine, device);
    match.saw(*question, fmt::format("{} {}", code, catalog::nvml_code_name(code)),
              fmt::format("NVML device {}", device.index));
    any = true;
  }
  return any;
}

bool works_now(const Machine& machine, const std::string& bdf) {
  const auto* device = machine.nvml_by_bdf(bdf);
  if (device == nullptr || device->handle_code != 0 || device->recovery_action.value_or(0) != 0) return false;
  const auto* cuda = machine.cuda_by_bdf(bdf);
  return cuda != nullptr && cuda->launch.is(0);
}

bool over(const Machine& machine, std::string_view id, const std::vector<Xid>& found) {
  if (training_log_shows(machine, id)) return false;
  return std::ranges::all_of(found, [&](const Xid& xid) { return works_now(machine, xid.bdf); });
}

bool gpu_expected(const Machine& machine) {
  const auto& hardware = machine.hardware;
  return !hardware.removal_rules.empty() || !hardware.integrated_modes.empty() ||
         hardware.vendor_dgpu_disabled.is(true) || module_installed(machine) ||
         !kernel_lines(machine, "NVRM: No NVIDIA PCI devices found").empty();
}

std::string watts(int milliwatts) {
  return std::to_string((milliwatts + 500) / 1000);
}

}  // namespace fullwatt::doctor
