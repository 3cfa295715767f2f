#include "fullwatt/doctor/rules/process_facts.hpp"

#include <algorithm>

#include "fullwatt/base/text.hpp"

namespace fullwatt::doctor {

using model::Machine;

std::vector<const model::NvmlDevice*> devices_used_by(const Machine& machine, int pid) {
  std::vector<const model::NvmlDevice*> used;
  for (const auto& device : machine.nvml.devices) {
    if (!device.processes) continue;
    if (std::ranges::find(*device.processes, pid, &model::GpuProcess::pid) != device.processes->end())
      used.push_back(&device);
  }
  return used;
}

bool nvml_lists_processes(const Machine& machine) {
  if (!machine.nvml.works() || machine.driver.container.inside() || machine.driver.wsl.version != 0) return false;
  return std::ranges::all_of(machine.nvml.devices,
                             [](const auto& device) { return device.processes && !device.mig_enabled.is(true); });
}

std::vector<int> allowed_cpus(const Machine& machine) {
  if (machine.process && machine.process->cpus) return base::number_list(*machine.process->cpus);
  return base::number_list(machine.host.system.cpus);
}

std::optional<int> variable_number(const Machine& machine, const std::string& name) {
  const auto value = machine.variable(name);
  return value ? base::number<int>(*value) : std::nullopt;
}

bool several_machines(const Machine& machine) {
  const auto world = variable_number(machine, "WORLD_SIZE");
  const auto local = variable_number(machine, "LOCAL_WORLD_SIZE");
  return world && local && *world > *local;
}

int local_ranks(const Machine& machine) {
  const auto gpus = static_cast<int>(machine.cuda.answers.devices.size());
  return std::max(1, variable_number(machine, "LOCAL_WORLD_SIZE").value_or(gpus));
}

}  // namespace fullwatt::doctor
