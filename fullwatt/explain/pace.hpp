#pragma once

#include <vector>

#include "fullwatt/explain/steps.hpp"

/// Host and GPU keep step only while the driver's queue is full. A host that finds it empty hurries ahead, its steps as
/// short as it can launch, and pays when something waits for the GPU.
namespace fullwatt::explain {

struct Settled {
  std::vector<double> ms;  ///< by step; steps that hurried and the one that paid for them share their time evenly
  std::vector<bool>
      hurried;  ///< by step; it hurried, and what paid for it was no step of the training (a window, an evaluation)
};
Settled settle(const std::vector<TrainingStep>& steps, const GpuPace& gpu);

}  // namespace fullwatt::explain
