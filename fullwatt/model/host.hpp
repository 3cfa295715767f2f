#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/base/reading.hpp"

namespace fullwatt::model {

using base::Reading;

/// A process that matters to the GPU: it holds a device node, or is one of the driver's daemons.
struct RunningProcess {
  int pid = 0;
  std::string name;
  std::string state;                   ///< R, S, D, Z …
  std::vector<std::string> gpu_nodes;  ///< /dev/nvidia* it has open, where readable

  static void fields(auto& self, auto&& visit) {
    visit("pid", self.pid);
    visit("name", self.name);
    visit("state", self.state);
    visit("gpu_nodes", self.gpu_nodes);
  }
};

/// What is not in a file at a known place: system calls, the package database, the process list, the logs.
struct System {
  std::string kernel;   ///< uname -r
  std::string machine;  ///< uname -m
  std::uint32_t uid = 1000;
  std::vector<std::uint32_t> groups;
  std::string cpus = "0-7";  ///< sched_getaffinity
  int online_cpus = 8;
  Reading<std::uint64_t> limit_address_space;  ///< RLIMIT_AS in bytes; absent (unsupported) when unlimited
  Reading<std::uint64_t> limit_memlock;
  Reading<std::uint64_t> limit_open_files;
  Reading<std::uint64_t> shm_total_bytes;  ///< statvfs of /dev/shm
  Reading<std::uint64_t> shm_free_bytes;
  Reading<std::vector<std::string>> kernel_log;
  std::map<std::string, std::vector<std::string>> service_logs;  ///< last lines of a unit's journal
  std::vector<std::string> interfaces;  ///< names of network interfaces that are up and have an address
  std::vector<RunningProcess> processes;
  std::map<std::string, std::string> packages;  ///< installed packages about NVIDIA and CUDA: name → version

  static void fields(auto& self, auto&& visit) {
    visit("kernel", self.kernel);
    visit("machine", self.machine);
    visit("uid", self.uid);
    visit("groups", self.groups);
    visit("cpus", self.cpus);
    visit("online_cpus", self.online_cpus);
    visit("limit_address_space", self.limit_address_space);
    visit("limit_memlock", self.limit_memlock);
    visit("limit_open_files", self.limit_open_files);
    visit("shm_total_bytes", self.shm_total_bytes);
    visit("shm_free_bytes", self.shm_free_bytes);
    visit("kernel_log", self.kernel_log);
    visit("service_logs", self.service_logs);
    visit("interfaces", self.interfaces);
    visit("processes", self.processes);
    visit("packages", self.packages);
  }
};

/// Layer 5: what the training would run under.
struct Host {
  System system;
  std::map<std::string, std::string> environment;  ///< only the variables that matter here
  Reading<double> cpu_quota;                       ///< processors granted by the cgroup; absent when unlimited
  Reading<std::uint64_t> cpu_throttled;            ///< nr_throttled of the cgroup
  Reading<std::uint64_t> cpu_periods;
  Reading<std::uint64_t> memory_limit_bytes;  ///< of the cgroup
  std::uint64_t memory_total_bytes = 0;
  std::uint64_t memory_available_bytes = 0;
  Reading<int> overcommit;  ///< vm.overcommit_memory
  Reading<std::uint64_t> commit_limit_bytes;
  Reading<double> io_pressure;  ///< "some avg60" of /proc/pressure/io, percent
  Reading<double> memory_pressure;
  int numa_nodes = 1;
  std::vector<std::string> stale_nccl_files;  ///< /dev/shm/nccl-*
  bool iommu = false;
  std::vector<std::string> lock_files;     ///< uv.lock, poetry.lock in the working folder
  Reading<std::string> lock_torch_source;  ///< where uv.lock takes torch from

  /// The value of a variable; nothing when unset.
  std::optional<std::string> variable(const std::string& name) const {
    const auto at = environment.find(name);
    return at == environment.end() ? std::nullopt : std::optional(at->second);
  }
  static void fields(auto& self, auto&& visit) {
    visit("system", self.system);
    visit("environment", self.environment);
    visit("cpu_quota", self.cpu_quota);
    visit("cpu_throttled", self.cpu_throttled);
    visit("cpu_periods", self.cpu_periods);
    visit("memory_limit_bytes", self.memory_limit_bytes);
    visit("memory_total_bytes", self.memory_total_bytes);
    visit("memory_available_bytes", self.memory_available_bytes);
    visit("overcommit", self.overcommit);
    visit("commit_limit_bytes", self.commit_limit_bytes);
    visit("io_pressure", self.io_pressure);
    visit("memory_pressure", self.memory_pressure);
    visit("numa_nodes", self.numa_nodes);
    visit("stale_nccl_files", self.stale_nccl_files);
    visit("iommu", self.iommu);
    visit("lock_files", self.lock_files);
    visit("lock_torch_source", self.lock_torch_source);
  }
};

/// A running training, as /proc/<pid> shows it.
struct Process {
  int pid = 0;
  std::string name;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;  ///< at its start
  std::vector<std::string> libraries;              ///< mapped shared libraries that matter here
  std::vector<std::string> gpu_nodes;              ///< /dev/nvidia* it has open
  Reading<std::string> cpus;                       ///< Cpus_allowed_list
  Reading<std::string> memory_nodes;               ///< Mems_allowed_list
  Reading<std::uint64_t> limit_memlock;
  Reading<std::uint64_t> limit_address_space;
  std::string state;
  int children = 0;    ///< direct child processes, loader workers among them
  std::string python;  ///< its interpreter, when it is one
  bool imports_torch = false;
  Reading<std::string> visible_devices_in_code;  ///< plain text that its script assigns to CUDA_VISIBLE_DEVICES
  Reading<int> descriptors;                      ///< open files; absent when they may not be listed
  std::vector<int> child_pids;

  static void fields(auto& self, auto&& visit) {
    visit("pid", self.pid);
    visit("name", self.name);
    visit("command", self.command);
    visit("environment", self.environment);
    visit("libraries", self.libraries);
    visit("gpu_nodes", self.gpu_nodes);
    visit("cpus", self.cpus);
    visit("memory_nodes", self.memory_nodes);
    visit("limit_memlock", self.limit_memlock);
    visit("limit_address_space", self.limit_address_space);
    visit("state", self.state);
    visit("children", self.children);
    visit("python", self.python);
    visit("imports_torch", self.imports_torch);
    visit("visible_devices_in_code", self.visible_devices_in_code);
    visit("descriptors", self.descriptors);
    visit("child_pids", self.child_pids);
  }
};

}  // namespace fullwatt::model
