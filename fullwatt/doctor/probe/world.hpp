#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/base/files.hpp"
#include "fullwatt/base/process.hpp"
#include "fullwatt/model/machine.hpp"

namespace fullwatt::doctor {

/// What the user asked to have looked at.
struct Target {
  std::string python;                           ///< interpreter named with --python
  int pid = 0;                                  ///< running training, 0: none
  std::optional<std::vector<std::string>> log;  ///< output of a failed training
  bool wake = false;                            ///< a sleeping GPU may be woken
  bool torch = true;                            ///< import torch
  std::chrono::milliseconds nvml_limit{10'000};
  std::chrono::milliseconds cuda_limit{20'000};
  std::chrono::milliseconds torch_limit{60'000};
};

/// Everything outside the program that a probe may ask: the real machine, or a recorded one.
class World {
 public:
  virtual ~World() = default;
  virtual base::Files& files() = 0;
  virtual const base::Environment& environment() = 0;
  virtual model::System system() = 0;
  /// The vendor's answers. `environment` is that of the training asked about.
  virtual model::Nvml nvml(const base::Environment& environment, std::chrono::milliseconds limit) = 0;
  virtual model::CudaAnswers cuda(const base::Environment& environment, std::chrono::milliseconds limit) = 0;
  virtual model::TorchAnswers torch(const std::string& interpreter, const base::Environment& environment,
                                    bool touch_gpu, std::chrono::milliseconds limit) = 0;
};

/// The machine this program runs on. Vendor libraries are loaded in child processes of `executable` (see
/// doctor/probe/child.hpp): they may hang, crash or take 100 MB, the doctor may not.
std::shared_ptr<World> this_machine(std::string executable);

}  // namespace fullwatt::doctor
