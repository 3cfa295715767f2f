#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fullwatt/explain/kernels.hpp"
#include "fullwatt/explain/steps.hpp"
#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// All launches of one kernel.
struct KernelUse {
  std::string name;  ///< readable
  KernelClass kind;
  double ms = 0;      ///< of a step
  double count = 0;   ///< of a step
  double blocks = 0;  ///< of a launch, mean
};

/// Copies of one direction and kind of memory.
struct CopyUse {
  enum class Direction { to_device, to_host, on_device, other };
  Direction direction = Direction::to_device;
  bool pageable = false;
  double ms = 0;     ///< of a step
  double count = 0;  ///< of a step
  double bytes = 0;  ///< of a step
};

/// A part of the time in which the GPU worked, nothing counted twice.
struct BusyPart {
  std::string cause;  ///< gpu-matmul, gpu-copy-h2d, gpu-communication …
  double ms = 0;      ///< of a step
};

/// What the GPU did in the windows of kernel times. Empty without kernel records.
struct GpuTime {
  int device = 0;                     ///< CUDA's index of the GPU that worked most
  double steps = 0;                   ///< covered
  double busy_ms = 0;                 ///< of a step; at most the mean plain step
  double window_step_ms = 0;          ///< a step's mean length inside the windows, until the GPU was done
  std::vector<double> idle_phase_ms;  ///< by HostPhase, of a window's step
  std::vector<double> host_phase_ms;  ///< by HostPhase, of a window's step, the GPU working or not
  std::vector<BusyPart> busy;
  std::vector<KernelUse> kernels;  ///< by ms
  std::vector<CopyUse> copies;
  bool from_causes = false;  ///< there was no window of kernel times alone

  bool known() const { return steps > 0; }
};

/// What the GPU's records are charged to.
class GpuCauses {
 public:
  explicit GpuCauses(const model::TrainingProcess& process) : process_(process) {}
  const KernelClass& kernel(std::uint32_t name);
  /// gpu-matmul, gpu-copy-h2d …
  const std::string& cause(const model::GpuActivity& activity);
  bool communicates(const model::GpuActivity& activity);

 private:
  const model::TrainingProcess& process_;
  std::unordered_map<std::uint32_t, KernelClass> classes_;
  std::unordered_map<std::string_view, std::string> kinds_;
};

GpuTime measure_gpu_time(const model::TrainingProcess& process, const std::vector<TrainingStep>& steps);
GpuTime measure_gpu_time(const model::TrainingProcess& process, const Steps& steps);
/// A step's mean comes from many steps, its kernels from a few: kernels that are longer than the step give way.
void fit_into(double step_ms, GpuTime& time);
/// Both of one process; each needs the other.
struct MeasuredSteps {
  Steps steps;
  GpuTime time;
};
MeasuredSteps measure_steps(const model::TrainingProcess& process);
std::vector<model::KernelGroup> kernel_groups(const GpuTime& time);

}  // namespace fullwatt::explain
