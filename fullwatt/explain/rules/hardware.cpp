// What kept the GPU from its full speed while it trained, as NVML saw it.

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "fullwatt/explain/machine_facts.hpp"
#include "fullwatt/explain/rules/rule.hpp"

namespace fullwatt::explain {
namespace {

namespace event = model::clock_event;

/// Fewer samples say nothing about a run.
constexpr std::size_t kLeastSamples = 5;
/// Kernels that wait for memory do not get slower with the core clock: this part of a lower clock is promised.
constexpr double kClockBound = 0.7;

/// How the GPU ran while some reasons to slow down were in force.
struct Slowed {
  double share = 0;  ///< of the samples
  double clock = 0;  ///< mean SM clock in MHz, 0 when not known
  double hottest = 0;
  double highest_clock = 0;  ///< what the card can do
};

Slowed slowed(const Case& examined, std::uint64_t bits) {
  Slowed found;
  const auto samples = working_samples(examined.evidence.run, examined.gpu);
  if (samples.size() < kLeastSamples) return found;
  double count = 0;
  double clocks = 0;
  for (const auto* sample : samples) {
    if ((sample->throttle_reasons.value_or(0) & bits) == 0) continue;
    ++count;
    clocks += sample->sm_clock_mhz.value_or(0);
    found.hottest = std::max(found.hottest, static_cast<double>(sample->temperature_c.value_or(0)));
  }
  found.share = count / static_cast<double>(samples.size());
  found.clock = count > 0 ? clocks / count : 0;
  if (examined.gpu.nvml != nullptr) found.highest_clock = examined.gpu.nvml->max_clock_sm_mhz.value_or(0);
  return found;
}

double busy_ms(const Case& examined) {
  return examined.evidence.gpu_time.known() ? examined.evidence.gpu_time.busy_ms : examined.step_ms();
}

/// The lower clock's part of the time in which the GPU works.
Match priced(const Case& examined, const Slowed& seen) {
  const double lost = seen.clock > 0 && seen.highest_clock > seen.clock ? 1 - seen.clock / seen.highest_clock : 0;
  const double ms = busy_ms(examined) * seen.share * lost;
  Match match;
  match.costs(ms, ms * kClockBound, examined.step_ms());
  match.fact("gpu", name_of(examined.gpu));
  match.fact("index", examined.gpu.nvml == nullptr ? "0" : std::to_string(examined.gpu.nvml->index));
  match.saw("samples in which it was slowed down", percent(seen.share) + " %", "NVML");
  if (seen.clock > 0)
    match.saw("SM clock then", fmt::format("{:.0f} of {:.0f} MHz", seen.clock, seen.highest_clock), "NVML");
  return match;
}

Matches by_reason(const Case& examined, std::uint64_t bits) {
  const auto seen = slowed(examined, bits);
  if (seen.share < 0.1) return {};
  return {priced(examined, seen)};
}

Matches thermal(const Case& examined) {
  const auto seen = slowed(examined, event::kSwThermal | event::kHwThermal);
  if (seen.share < 0.1 || (seen.hottest > 0 && seen.hottest < 60)) return {};
  auto match = priced(examined, seen);
  return {match.fact("temperature", fmt::format("{:.0f}", seen.hottest))
              .saw("hottest", fmt::format("{:.0f} °C", seen.hottest), "NVML")};
}

Matches power_brake(const Case& examined) {
  return by_reason(examined, event::kHwPowerBrake);
}
/// The bit is also set together with heat and power brake, which have their own rules.
Matches fast_trigger(const Case& examined) {
  const auto other = slowed(examined, event::kHwThermal | event::kSwThermal | event::kHwPowerBrake);
  return other.share >= 0.1 ? Matches{} : by_reason(examined, event::kHwSlowdown);
}
Matches sync_boost(const Case& examined) {
  return by_reason(examined, event::kSyncBoost);
}
Matches display_clock(const Case& examined) {
  return by_reason(examined, event::kDisplayClock);
}

/// A card at its own default limit works as it should; one that somebody lowered does not.
Matches power_cap(const Case& examined) {
  const auto* device = examined.gpu.nvml;
  if (device == nullptr || !device->power_default_mw) return {};
  const auto limit = device->power_enforced_mw ? device->power_enforced_mw : device->power_limit_mw;
  if (!limit || *limit > *device->power_default_mw * 99 / 100) return {};
  const auto seen = slowed(examined, event::kSwPowerCap);
  if (seen.share < 0.2) return {};
  auto match = priced(examined, seen);
  match.fact("limit", fmt::format("{}", *limit / 1000))
      .fact("default", fmt::format("{}", *device->power_default_mw / 1000));
  return {
      match.saw("power limit", fmt::format("{} W of {} W", *limit / 1000, *device->power_default_mw / 1000), "NVML")};
}

/// Busy, nothing slows it, and the clock stands still far below what is possible.
Matches clocks_locked(const Case& examined) {
  const auto samples = working_samples(examined.evidence.run, examined.gpu);
  const auto* device = examined.gpu.nvml;
  if (samples.size() < kLeastSamples || device == nullptr || !device->max_clock_sm_mhz) return {};
  int lowest = 0;
  int highest = 0;
  for (const auto* sample : samples) {
    if (!sample->sm_clock_mhz || sample->utilization_percent.value_or(0) < 50) continue;
    if ((sample->throttle_reasons.value_or(0) & ~(event::kApplicationClocks | event::kIdle)) != 0) return {};
    lowest = lowest == 0 ? *sample->sm_clock_mhz : std::min(lowest, *sample->sm_clock_mhz);
    highest = std::max(highest, *sample->sm_clock_mhz);
  }
  const double possible = *device->max_clock_sm_mhz;
  if (highest == 0 || highest - lowest > 15 || highest > 0.9 * possible) return {};
  auto match = priced(examined, {1, static_cast<double>(highest), 0, possible});
  return {match.fact("value", std::to_string(highest)).fact("expected", fmt::format("{:.0f}", possible))};
}

/// Copies from pinned memory that lie open in the step: only they show what the link carries.
struct LinkUse {
  double exposed_ms = 0;
  double gbs = 0;
};

LinkUse link_use(const Case& examined) {
  double ms = 0;
  double bytes = 0;
  for (const auto& use : examined.evidence.gpu_time.copies) {
    if (use.direction != CopyUse::Direction::to_device || use.pageable || use.count <= 0 || use.bytes / use.count < 4e6)
      continue;
    ms += use.ms;
    bytes += use.bytes;
  }
  if (ms <= 0) return {};
  return {std::min(ms, examined.charged(cause::kGpuCopyToDevice)), bytes / 1e6 / ms};
}

/// The generation that a speed looks like: the lowest that can carry it.
int generation_of(double gbs, int width, int highest) {
  for (int generation = 1; generation < highest; ++generation) {
    if (catalog::pcie_gbs(generation, width) * 0.95 >= gbs) return generation;
  }
  return highest;
}

Matches link_generation(const Case& examined) {
  const auto* device = examined.gpu.nvml;
  const auto use = link_use(examined);
  if (device == nullptr || !device->pcie_width || !device->pcie_max_generation || use.gbs <= 0) return {};
  const double possible = catalog::pcie_gbs(*device->pcie_max_generation, *device->pcie_width);
  const int seen = generation_of(use.gbs, *device->pcie_width, *device->pcie_max_generation);
  if (possible <= 0 || seen >= *device->pcie_max_generation || use.gbs > 0.5 * possible) return {};
  Match match;
  match.costs(use.exposed_ms, use.exposed_ms * (1 - use.gbs / (0.8 * possible)), examined.step_ms());
  match.fact("gpu", name_of(examined.gpu))
      .fact("value", std::to_string(seen))
      .fact("expected", std::to_string(*device->pcie_max_generation));
  return {match.saw("copies from pinned memory", fmt::format("{:.1f} of {:.1f} GB/s", use.gbs, possible), "CUPTI")};
}

Matches link_width(const Case& examined) {
  const auto* device = examined.gpu.nvml;
  const auto use = link_use(examined);
  if (device == nullptr || !device->pcie_width || !device->pcie_max_width ||
      *device->pcie_width >= *device->pcie_max_width || use.gbs <= 0)
    return {};
  Match match;
  match.costs(use.exposed_ms, use.exposed_ms * (1 - static_cast<double>(*device->pcie_width) / *device->pcie_max_width),
              examined.step_ms());
  match.fact("gpu", name_of(examined.gpu))
      .fact("value", std::to_string(*device->pcie_width))
      .fact("expected", std::to_string(*device->pcie_max_width));
  return {match.saw("PCIe lanes", fmt::format("{} of {}", *device->pcie_width, *device->pcie_max_width), "NVML")};
}

constexpr std::array kRules{
    Rule{"thermal-throttle", thermal},
    Rule{"hw-power-brake", power_brake},
    Rule{"hw-slowdown-fast-trigger", fast_trigger},
    Rule{"power-cap-lowered", power_cap},
    Rule{"clocks-locked", clocks_locked},
    Rule{"sync-boost-group", sync_boost},
    Rule{"display-clock-limit", display_clock},
    Rule{"pcie-gen-stuck-low", link_generation},
    Rule{"pcie-width-reduced", link_width},
};

}  // namespace

std::span<const Rule> hardware_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
