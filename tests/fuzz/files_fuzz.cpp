// The probes over files with any content: sysfs and procfs of another kernel, another distribution, an attacker.

#include <array>
#include <cstdint>
#include <string>

#include "tests/fuzz/require.hpp"
#include <fuzzer/FuzzedDataProvider.h>

#include "fullwatt/doctor/probe/probes.hpp"

namespace {

using namespace fullwatt;

/// Every kind of file that some probe reads; the fuzzer decides what stands in them.
constexpr std::array kPaths{
    "/sys/bus/pci/devices/0000:01:00.0/class",
    "/sys/bus/pci/devices/0000:01:00.0/vendor",
    "/sys/bus/pci/devices/0000:01:00.0/device",
    "/sys/bus/pci/devices/0000:01:00.0/resource",
    "/sys/bus/pci/devices/0000:01:00.0/config",
    "/sys/bus/pci/devices/0000:01:00.0/current_link_width",
    "/sys/bus/pci/devices/0000:01:00.0/max_link_speed",
    "/sys/bus/pci/devices/0000:01:00.0/numa_node",
    "/sys/bus/pci/devices/0000:00:01.0/config",
    "/sys/bus/pci/devices/0000:00:01.0/class",
    "/proc/driver/nvidia/gpus/0000:01:00.0/information",
    "/proc/driver/nvidia/gpus/0000:01:00.0/power",
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/sys/module/nvidia/version",
    "/sys/class/power_supply/BAT0/type",
    "/sys/class/dmi/id/chassis_type",
    "/etc/udev/rules.d/50-remove.rules",
    "/etc/supergfxd.conf",
    "/etc/modprobe.d/nvidia.conf",
    "/proc/cmdline",
    "/proc/devices",
    "/proc/cpuinfo",
    "/lib/modules/6.8/modules.dep",
    "/lib/modules/6.9/modules.dep",
    "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
    "/etc/os-release",
    "/etc/cdi/nvidia.yaml",
    "/etc/docker/daemon.json",
    "/etc/nvidia-container-runtime/config.toml",
    "/proc/1/cgroup",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d/a.conf",
    "/usr/local/cuda-13.0/version.json",
    "/proc/meminfo",
    "/proc/self/cgroup",
    "/proc/42/cgroup",
    "/sys/fs/cgroup/cpu.max",
    "/sys/fs/cgroup/cpu.stat",
    "/sys/fs/cgroup/memory.max",
    "/proc/pressure/io",
    "/proc/sys/vm/overcommit_memory",
    "/home/ada/uv.lock",
    "/proc/42/status",
    "/proc/42/cmdline",
    "/proc/42/environ",
    "/proc/42/maps",
    "/proc/42/limits",
    "/proc/42/task/42/children",
    "/home/ada/train.py",
    "/home/ada/venv/lib/python3.12/site-packages/torch/version.py",
    "/home/ada/.local/share/jupyter/kernels/k/kernel.json",
    "/opt/libtorch/build-version",
};

/// Links whose target the fuzzer decides.
constexpr std::array kLinks{
    "/sys/bus/pci/devices/0000:01:00.0",
    "/sys/bus/pci/devices/0000:01:00.0/driver",
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/proc/42/exe",
    "/proc/42/cwd",
    "/proc/42/fd/3",
    "/usr/local/cuda",
};

std::string next_text(FuzzedDataProvider& input) {
  return input.ConsumeRandomLengthString(1024);
}

/// Half of what a probe looks for is not there, as on most machines.
base::Tree make_tree(FuzzedDataProvider& input) {
  base::Tree tree;
  for (const auto* path : kPaths) {
    if (input.ConsumeBool()) tree[path].text = next_text(input);
  }
  for (const auto* path : kLinks) {
    if (input.ConsumeBool()) tree[path].link = next_text(input);
  }
  tree["/opt/libtorch/lib/libtorch.so"].text = "";
  tree["/home/ada/venv/bin/python"].text = "";
  if (input.ConsumeBool()) tree[base::normal_path(next_text(input))].text = next_text(input);
  return tree;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  model::System system;
  system.kernel = input.ConsumeBool() ? "6.8" : input.ConsumeRandomLengthString(64);
  base::Environment environment{{"HOME", "/home/ada"}, {"PWD", "/home/ada"}, {"VIRTUAL_ENV", "/home/ada/venv"}};
  for (const auto* name : {"LD_LIBRARY_PATH", "PATH", "CUDA_HOME", "Torch_DIR", "PYTHONPATH", "CUDA_CACHE_PATH"}) {
    if (input.ConsumeBool()) environment[name] = input.ConsumeRandomLengthString(64);
  }
  base::TreeFiles files(make_tree(input), input.ConsumeIntegral<std::uint32_t>());

  doctor::probe_hardware(files);
  doctor::probe_driver(files, system, environment);
  doctor::probe_cuda(files, system, environment);
  const auto host = doctor::probe_host(files, system, environment, 42);
  REQUIRE(!host.cpu_quota || *host.cpu_quota > 0);
  REQUIRE(host.numa_nodes >= 1);
  doctor::probe_host(files, system, environment, 0);
  const auto process = doctor::probe_process(files, 42);
  doctor::probe_torch(files, {}, environment, environment, process ? &*process : nullptr);
  return 0;
}
