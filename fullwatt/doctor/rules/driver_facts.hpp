#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/doctor/rules/rule.hpp"

/// Questions that several rules of the driver layer ask.
namespace fullwatt::doctor {

/// On the machine itself: neither in a container nor in WSL, where the driver belongs to somebody else.
bool on_the_machine(const model::Machine& machine);
/// NVIDIA's module or its libraries are there, whether they work or not.
bool driver_installed(const model::Machine& machine);
/// Of the loaded module, else of the libraries on disk; empty when unknown.
std::string driver_version(const model::Machine& machine);
/// 580 of 580.95.05; 0 when unknown.
int driver_branch(const model::Machine& machine);
/// open or closed, of the loaded module, else as its files and packages are named; empty when unknown.
std::string module_flavour(const model::Machine& machine);
/// Whether a driver of this version and flavour can serve the GPU, as far as its generation tells.
bool driver_serves(const model::Machine& machine, const model::PciGpu& gpu);
/// The driver's own libcuda.so.1 on the search path, not one for forward compatibility or a stub; null without one.
const model::FoundLibrary* driver_library(const model::Machine& machine);
/// Whether a path leads to a libcuda for forward compatibility or for linking.
bool is_stand_in(std::string_view path);

/// NVML was called; otherwise nobody knows whether it works.
bool nvml_was_asked(const model::Machine& machine);
/// NVML lists this GPU: whatever a log says, it works now.
bool nvml_lists(const model::Machine& machine, std::string_view bdf);
bool nvml_lists_any(const model::Machine& machine);
/// NVIDIA GPUs on the bus that NVML does not list; where it was not asked, those that the module has not taken.
/// A container that was given some GPUs of its host lacks none, and one that was given nothing cannot tell.
std::vector<const model::PciGpu*> unlisted_gpus(const model::Machine& machine);
/// NVIDIA GPUs on the bus that no virtual machine has reserved.
std::vector<const model::PciGpu*> unreserved_gpus(const model::Machine& machine);
bool reserved_for_vm(const model::PciGpu& gpu);
bool held_by_nouveau(const model::PciGpu& gpu);
/// A device file of one GPU: /dev/nvidia0 and on.
bool is_gpu_node(const model::DeviceNode& node);
/// Owner and mode of the device file keep this user out.
bool mode_denies(const model::Machine& machine, const model::DeviceNode& node);
bool has_gpu_node(const model::Machine& machine);
/// cuInit was called and failed with one of these codes.
bool cuda_failed_with(const model::Machine& machine, std::initializer_list<int> codes);

/// The first line of the kernel log that holds `text`; empty without one or where the log may not be read.
std::string kernel_line(const model::Machine& machine, std::string_view text);
/// Whether the training log asked about shows this finding.
bool training_log_shows(const model::Machine& machine, std::string_view id);
/// What the GPU is bound to, for evidence.
std::string bound_driver(const model::PciGpu& gpu);

}  // namespace fullwatt::doctor
