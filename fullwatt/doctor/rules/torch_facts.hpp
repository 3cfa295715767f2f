#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/doctor/rules/rule.hpp"
#include "fullwatt/model/machine.hpp"

namespace fullwatt::doctor {

/// Whether there is an NVIDIA GPU that PyTorch could use, whatever of it can be seen.
bool nvidia_gpu_present(const model::Machine& machine);

/// The PyTorch that trains: as it answered, else as it lies on disk.
struct TorchBuild {
  std::string version;
  std::string cuda;  ///< empty for a build without CUDA
  std::string hip;
  std::string xpu;
  std::string path;  ///< its folder

  bool cpu_only() const { return cuda.empty() && hip.empty() && xpu.empty(); }
};
std::optional<TorchBuild> torch_build(const model::Machine& machine);

/// One GPU as PyTorch would use it.
struct TorchGpu {
  std::string name;
  std::string compute_capability;  ///< "8.9"; empty when unknown
  bool computes = false;           ///< PyTorch ran a checked matrix product on it
};
std::vector<TorchGpu> torch_gpus(const model::Machine& machine);

/// The wheel index that fits driver and GPU, such as cu130.
std::string fitting_wheel(const model::Machine& machine);

/// The facts of a remedy that installs PyTorch: python and index_tag.
Match& add_install_facts(const model::Machine& machine, Match& match);

/// The line of the training log that holds a message of this entry; nothing without one. The diagnosis finds it by
/// itself; a rule asks to add facts that the message does not hold, or to judge by it.
std::optional<std::string> log_line(const model::Machine& machine, std::string_view id);
bool log_shows(const model::Machine& machine, std::string_view id);

/// Where a variable of the training was read.
std::string environment_source(const model::Machine& machine);

/// What stands at `{name}` of a pattern in the training log.
std::optional<std::string> captured_in_log(const model::Machine& machine, std::string_view pattern,
                                           const std::string& name);

}  // namespace fullwatt::doctor
