#pragma once

#include <optional>
#include <string>
#include <vector>

/// Which device a training belongs on, from what was measured on both. No torch.
namespace fullwatt::api {

/// Samples a second over some rounds.
struct Speed {
  double median = 0;
  double lowest = 0;
  double highest = 0;
};

enum class FasterDevice {
  gpu,
  cpu,
  neither,  ///< the rounds of both overlap
  unknown,  ///< one of them was not measured
};

struct DeviceDecision {
  FasterDevice faster = FasterDevice::unknown;
  std::string device = "cpu";               ///< to train on: cuda or cpu
  std::optional<double> improvement;        ///< the GPU's speed over the CPU's: 5 is five times as fast
  std::optional<double> improvement_least;  ///< the slowest round of the GPU over the fastest of the CPU
  std::optional<double> improvement_most;   ///< the other way round
  bool reaches_goal = false;                ///< even at least, it is kImprovementGoal
  std::string conclusion;                   ///< one or two sentences
};

/// What a GPU that is worth its power gives.
constexpr double kImprovementGoal = 5;

/// A GPU is chosen only where all its rounds were faster: very small work can be faster on a CPU. Speeds that no
/// measurement gives (0, no number) count as not measured.
DeviceDecision decide_device(const Speed& cpu, const std::optional<Speed>& gpu);

/// Which of torch's GPUs, by the PCI addresses of all, is the one that was selected; the first where it is none of
/// them.
std::size_t index_of_gpu(const std::string& selected, const std::vector<std::string>& pci_addresses);

}  // namespace fullwatt::api
