#pragma once

#include <string>
#include <vector>

#include "fullwatt/base/files.hpp"
#include "fullwatt/base/process.hpp"
#include "fullwatt/doctor/probe/world.hpp"
#include "fullwatt/model/machine.hpp"

/// One function per layer. They read and fill; they never judge.
namespace fullwatt::doctor {

model::Hardware probe_hardware(base::Files& files);
model::Driver probe_driver(base::Files& files, const model::System& system, const base::Environment& environment);
model::Container probe_container(base::Files& files);
/// Fills what lies on disk; the answers of libcuda come from the World.
model::Cuda probe_cuda(base::Files& files, const model::System& system, const base::Environment& environment);
/// Which interpreter the user would run, and every torch that lies on disk. `environment` is that of the training,
/// `shell` that of the user who asks: they differ when a process is asked about.
model::Torch probe_torch(base::Files& files, const Target& target, const base::Environment& environment,
                         const base::Environment& shell, const model::Process* process);
/// What the training runs under; `pid` is its process, 0 for this one.
model::Host probe_host(base::Files& files, model::System system, const base::Environment& environment, int pid);
base::Reading<model::Process> probe_process(base::Files& files, int pid);

/// The variables of an environment that a diagnosis may look at; the rest is nobody's business.
base::Environment relevant(const base::Environment& environment);

/// Folders that the loader searches, in its order, each with where it was named.
struct SearchFolder {
  std::string path;
  std::string origin;  ///< LD_LIBRARY_PATH, ld.so.conf, default
};
std::vector<SearchFolder> loader_folders(base::Files& files, const base::Environment& environment);

}  // namespace fullwatt::doctor
