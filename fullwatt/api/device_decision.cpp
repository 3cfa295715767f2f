#include "fullwatt/api/device_decision.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace fullwatt::api {
namespace {

/// Beyond these no clock tells anything.
constexpr double kSlowest = 1e-9;
constexpr double kFastest = 1e15;

bool is_measured(const Speed& speed) {
  return speed.lowest >= kSlowest && speed.lowest <= speed.median && speed.median <= speed.highest &&
         speed.highest <= kFastest;
}

DeviceDecision without_comparison(bool has_cpu, bool has_gpu) {
  DeviceDecision decision;
  if (has_gpu) {
    decision.device = "cuda";
    decision.conclusion = "Only the GPU was measured.";
  } else {
    decision.conclusion = has_cpu ? "Only the CPU was measured." : "Neither the CPU nor the GPU was measured.";
  }
  return decision;
}

FasterDevice faster_of(const Speed& cpu, const Speed& gpu) {
  if (gpu.lowest > cpu.highest) return FasterDevice::gpu;
  if (cpu.lowest > gpu.highest) return FasterDevice::cpu;
  return FasterDevice::neither;
}

std::string conclusion_of(const DeviceDecision& decision) {
  const auto range = [](double least, double most) { return fmt::format("({:.3g} to {:.3g})", least, most); };
  const double least = *decision.improvement_least;
  const double most = *decision.improvement_most;
  switch (decision.faster) {
    case FasterDevice::gpu:
      return fmt::format("The GPU is {:.3g} times as fast as the CPU {}.", *decision.improvement, range(least, most));
    case FasterDevice::cpu:
      return fmt::format(
          "The CPU is {:.3g} times as fast as the GPU {}: a step is too little work for a GPU. Train on the CPU, or "
          "try larger batches.",
          1 / *decision.improvement, range(1 / most, 1 / least));
    case FasterDevice::neither:
    case FasterDevice::unknown:
      break;
  }
  return fmt::format("The GPU is {:.3g} times as fast as the CPU {}: too little to tell them apart. The CPU will do.",
                     *decision.improvement, range(least, most));
}

}  // namespace

DeviceDecision decide_device(const Speed& cpu, const std::optional<Speed>& gpu) {
  const bool has_cpu = is_measured(cpu);
  const bool has_gpu = gpu && is_measured(*gpu);
  if (!has_cpu || !has_gpu) return without_comparison(has_cpu, has_gpu);
  DeviceDecision decision;
  decision.faster = faster_of(cpu, *gpu);
  decision.device = decision.faster == FasterDevice::gpu ? "cuda" : "cpu";
  decision.improvement = gpu->median / cpu.median;
  decision.improvement_least = gpu->lowest / cpu.highest;
  decision.improvement_most = gpu->highest / cpu.lowest;
  decision.reaches_goal = *decision.improvement_least >= kImprovementGoal;
  decision.conclusion = conclusion_of(decision);
  return decision;
}

std::size_t index_of_gpu(const std::string& selected, const std::vector<std::string>& pci_addresses) {
  const auto found = std::ranges::find(pci_addresses, selected);
  return found != pci_addresses.end() ? static_cast<std::size_t>(found - pci_addresses.begin()) : 0;
}

}  // namespace fullwatt::api
