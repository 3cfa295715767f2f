#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fullwatt/model/machine.hpp"

namespace fullwatt::doctor {

/// GPUs on which NVML lists this process.
std::vector<const model::NvmlDevice*> devices_used_by(const model::Machine& machine, int pid);

/// Whether a process that NVML does not list uses no GPU: NVML sees all processes and calls them by the same ids as we.
bool nvml_lists_processes(const model::Machine& machine);

/// Processors that the training may use: of the process asked about, else of this one.
std::vector<int> allowed_cpus(const model::Machine& machine);

/// The number in a variable of the training, such as WORLD_SIZE.
std::optional<int> variable_number(const model::Machine& machine, const std::string& name);

/// Whether the training spans several machines.
bool several_machines(const model::Machine& machine);

/// Processes of the training on this machine, one for each GPU where nothing says otherwise.
int local_ranks(const model::Machine& machine);

}  // namespace fullwatt::doctor
