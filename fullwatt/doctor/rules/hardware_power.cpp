// Layer 1: what keeps a healthy GPU from its full speed: heat, power limits, the power supply.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/rules/gpu_state.hpp"
#include "fullwatt/doctor/rules/rule.hpp"

namespace fullwatt::doctor {
namespace {

using model::Machine;
using model::NvmlDevice;

constexpr std::string_view kPowerd = "nvidia-powerd";

/// Limits are set in whole watts; what differs by less than one per cent is the same.
bool below(int milliwatts, int other) {
  return milliwatts < other - other / 100;
}

/// The limit in force: what the driver enforces, else what was set.
base::Reading<int> limit_of(const NvmlDevice& device) {
  return device.power_enforced_mw ? device.power_enforced_mw : device.power_limit_mw;
}

bool any_supply(const Machine& machine, std::string_view type, bool online) {
  return std::ranges::any_of(machine.hardware.power_supplies,
                             [&](const auto& supply) { return supply.type == type && supply.online.is(online); });
}

bool has_battery(const Machine& machine) {
  const auto& supplies = machine.hardware.power_supplies;
  return std::ranges::any_of(supplies, [](const auto& supply) { return supply.type == "Battery"; });
}

/// The kernel's view, for where the driver cannot be asked: an adapter is known, and neither it nor a USB-C charger is
/// in.
bool unplugged(const Machine& machine) {
  return has_battery(machine) && any_supply(machine, "Mains", false) && !any_supply(machine, "Mains", true) &&
         !any_supply(machine, "USB", true);
}

/// Whether a laptop's GPU has full power to draw on: only then its limits say something about settings.
bool on_mains(const Machine& machine, const NvmlDevice& device) {
  return device.power_source ? *device.power_source == 0 : !unplugged(machine);
}

/// Adds a GPU that lowers its clocks for one of these reasons.
void saw_event(Match& match, const Machine& machine, const NvmlDevice& device, std::uint64_t bits) {
  name_device(match, machine, device);
  match.saw("clock event reasons", fmt::format("0x{:x}", *device.clock_events & bits),
            fmt::format("NVML device {}", device.index));
}

/// A cold GPU can carry the bit for a moment, or because its maker's firmware set it; it is not too hot then.
std::optional<Match> thermal_throttle(const Machine& machine) {
  constexpr int kCold = 60;
  constexpr auto kBits = model::clock_event::kSwThermal | model::clock_event::kHwThermal;
  Match match;
  for (const auto& device : machine.nvml.devices) {
    const auto& degrees = device.temperature_c;
    if (!device.event(kBits) || (degrees && *degrees < kCold)) continue;
    match.fact("temperature", degrees ? std::to_string(*degrees) : "?");
    saw_event(match, machine, device, kBits);
    if (degrees) match.saw("temperature", fmt::format("{} °C", *degrees), "NVML");
    if (device.slowdown_c) match.saw("slows down at", fmt::format("{} °C", *device.slowdown_c), "NVML");
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

std::optional<Match> hw_power_brake(const Machine& machine) {
  Match match;
  for (const auto& device : machine.nvml.devices) {
    if (!device.event(model::clock_event::kHwPowerBrake)) continue;
    saw_event(match, machine, device, model::clock_event::kHwPowerBrake);
    if (device.clock_sm_mhz) match.saw("SM clock", fmt::format("{} MHz", *device.clock_sm_mhz), "NVML");
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

/// By its name where the machine does not show what it is, as in WSL.
bool in_laptop(const Machine& machine, const NvmlDevice& device) {
  return machine.hardware.portable() || base::contains(device.name.value_or(""), "Laptop");
}

/// A laptop's limits move by themselves, with its adapter, profile and Dynamic Boost.
std::optional<Match> power_cap_lowered(const Machine& machine) {
  Match match;
  for (const auto& device : machine.nvml.devices) {
    const auto limit = limit_of(device);
    if (in_laptop(machine, device) || !limit || !device.power_default_mw || !below(*limit, *device.power_default_mw))
      continue;
    name_device(match, machine, device);
    match.fact("limit", watts(*limit)).fact("default", watts(*device.power_default_mw));
    match.saw(fmt::format("power limit of GPU {}", device.index),
              fmt::format("{} W of {} W", watts(*limit), watts(*device.power_default_mw)), "NVML");
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

std::optional<Match> on_battery(const Machine& machine) {
  Match match;
  for (const auto& device : machine.nvml.devices) {
    if (!device.power_source.is(1)) continue;
    name_device(match, machine, device);
    match.saw("power source", "battery", "NVML");
    if (const auto limit = limit_of(device)) match.saw("power limit", watts(*limit) + " W", "NVML");
  }
  const auto gpus = machine.hardware.nvidia();
  const auto told = [](const NvmlDevice& device) { return device.power_source.has_value(); };
  if (!gpus.empty() && unplugged(machine) && std::ranges::none_of(machine.nvml.devices, told)) {
    match.about(machine, gpus.front()->bdf).saw("power adapter", "not plugged in", "/sys/class/power_supply");
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

std::optional<Match> undersized_adapter(const Machine& machine) {
  Match match;
  for (const auto& device : machine.nvml.devices) {
    if (!device.power_source.is(2)) continue;
    name_device(match, machine, device);
    match.saw("power source", "undersized adapter", "NVML");
    if (const auto limit = limit_of(device)) match.saw("power limit", watts(*limit) + " W", "NVML");
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

/// A laptop's GPU with Dynamic Boost, on mains, whose limits are known.
struct Boosted {
  const NvmlDevice* device = nullptr;
  int limit = 0;
  int standard = 0;
};

std::vector<Boosted> boosted(const Machine& machine) {
  std::vector<Boosted> found;
  for (const auto* gpu : machine.hardware.nvidia()) {
    const auto* device = machine.nvml_by_bdf(gpu->bdf);
    if (device == nullptr || !gpu->proc_dynamic_boost.is("Supported") || !on_mains(machine, *device)) continue;
    const auto limit = limit_of(*device);
    if (limit && device->power_default_mw) found.push_back({device, *limit, *device->power_default_mw});
  }
  return found;
}

/// Names the GPU and its limits.
void saw_limits(Match& match, const Machine& machine, const Boosted& gpu) {
  name_device(match, machine, *gpu.device);
  match.fact("limit", watts(gpu.limit)).fact("default", watts(gpu.standard));
  match.saw("power limit", fmt::format("{} W, {} W by default", watts(gpu.limit), watts(gpu.standard)), "NVML");
  if (gpu.device->power_max_mw) match.saw("highest power limit", watts(*gpu.device->power_max_mw) + " W", "NVML");
}

/// From inside a container the host's daemons cannot be seen.
std::optional<Match> dynamic_boost_daemon_off(const Machine& machine) {
  if (machine.driver.running(kPowerd) || machine.driver.container.inside()) return std::nullopt;
  Match match;
  for (const auto& gpu : boosted(machine)) {
    const bool room_above = gpu.device->power_max_mw && below(gpu.standard, *gpu.device->power_max_mw);
    if (!room_above || below(gpu.standard, gpu.limit)) continue;
    saw_limits(match, machine, gpu);
    match.saw("Notebook Dynamic Boost", "Supported", "/proc/driver/nvidia/gpus");
    match.saw(std::string(kPowerd),
              machine.driver.service(kPowerd) != nullptr ? "installed, not running" : "not installed");
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

/// The firmware told the daemon to keep off; the journal keeps that line.
const std::string* refusal(const Machine& machine) {
  const auto* powerd = machine.driver.service(kPowerd);
  if (powerd == nullptr) return nullptr;
  const auto at = std::ranges::find_if(
      powerd->log, [](const auto& line) { return base::contains(line, "has requested to disable Dynamic Boost"); });
  return at == powerd->log.end() ? nullptr : &*at;
}

/// A profile that saves power lowers the limit on purpose.
bool saves_power(const Machine& machine) {
  const auto& profile = machine.hardware.platform_profile;
  return profile.is("low-power") || profile.is("quiet") || profile.is("cool");
}

std::optional<Match> dynamic_boost_makes_it_worse(const Machine& machine) {
  if (!machine.driver.running(kPowerd) || saves_power(machine) || refusal(machine) != nullptr) return std::nullopt;
  Match match;
  for (const auto& gpu : boosted(machine)) {
    if (!below(gpu.limit, gpu.standard)) continue;
    saw_limits(match, machine, gpu);
    match.saw(std::string(kPowerd), "running");
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

std::optional<Match> laptop_firmware_tgp_lock(const Machine& machine) {
  const auto* line = refusal(machine);
  if (line == nullptr || saves_power(machine)) return std::nullopt;
  Match match;
  for (const auto& gpu : boosted(machine)) {
    const auto& highest = gpu.device->power_max_mw;
    if (below(gpu.standard, gpu.limit) || !highest || !below(gpu.limit, *highest)) continue;
    saw_limits(match, machine, gpu);
    match.saw("message", base::printable(*line, 200), "journal of nvidia-powerd");
  }
  return match.evidence.empty() ? std::nullopt : std::optional(match);
}

constexpr std::array kRules{
    Rule{"thermal-throttle", kNvml, thermal_throttle},
    Rule{"hw-power-brake", kNvml, hw_power_brake},
    Rule{"power-cap-lowered", kNvml, power_cap_lowered},
    Rule{"on-battery", kNothing, on_battery},
    Rule{"undersized-adapter", kNvml, undersized_adapter},
    Rule{"dynamic-boost-daemon-off", kNvml, dynamic_boost_daemon_off},
    Rule{"dynamic-boost-makes-it-worse", kNvml, dynamic_boost_makes_it_worse},
    Rule{"laptop-firmware-tgp-lock", kNvml, laptop_firmware_tgp_lock},
};

}  // namespace

std::span<const Rule> hardware_power_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
