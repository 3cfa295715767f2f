#pragma once

#include <cstdint>
#include <string>

#include "fullwatt/model/machine.hpp"

/// Machines made by hand, for tests of what is judged from them.
namespace fullwatt::tests {

constexpr std::uint64_t kGib = 1024ULL * 1024 * 1024;

/// A healthy Linux machine with a driver, CUDA and PyTorch, and no GPU yet.
inline model::Machine machine_without_gpu() {
  model::Machine machine;
  machine.hardware.pci_devices = 20;
  machine.driver.kernel = "6.8.0-85-generic";
  machine.driver.distribution = "ubuntu";
  machine.driver.loaded = true;
  machine.driver.uvm_loaded = true;
  machine.driver.version = "580.95.05";
  machine.driver.flavour = "open";
  machine.driver.kernel_log = std::vector<std::string>{};
  machine.driver.nodes = {{"/dev/nvidiactl", 195, 255, 0666, 0, 0, 0}, {"/dev/nvidia-uvm", 507, 0, 0666, 0, 0, 0}};
  machine.driver.uvm_major = 507;
  machine.nvml.library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05";
  machine.nvml.init = 0;
  machine.nvml.driver_version = "580.95.05";
  machine.nvml.cuda_version = 13000;
  machine.cuda.answers.library = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05";
  machine.cuda.answers.init = 0;
  machine.cuda.answers.driver_version = 13000;
  machine.cuda.libcuda = {{"/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05",
                           "580.95.05", "default"}};
  machine.torch.interpreter = "/home/ada/venv/bin/python";
  machine.torch.interpreter_origin = "VIRTUAL_ENV";
  machine.torch.answers.executable = "/home/ada/venv/bin/python";
  machine.torch.answers.version = "2.11.0+cu130";
  machine.torch.answers.file = "/home/ada/venv/lib/python3.12/site-packages/torch/__init__.py";
  machine.torch.answers.cuda = "13.0";
  machine.torch.answers.archs = {"sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"};
  machine.torch.answers.available = true;
  machine.torch.answers.device_count = 0;
  machine.host.system.kernel = machine.driver.kernel;
  return machine;
}

/// What a test wants of a GPU; the rest is healthy.
struct Gpu {
  std::string bdf = "0000:01:00.0";
  std::string uuid = "GPU-11111111-aaaa-bbbb-cccc-000000000001";
  std::string name = "NVIDIA GeForce RTX 5090";
  std::string compute_capability = "12.0";
  std::uint64_t memory_bytes = 32 * kGib;
  int cores = 21760;
  bool discrete = true;
};

inline model::PciGpu pci_gpu(const std::string& bdf, int vendor, const std::string& name, bool discrete) {
  model::PciGpu gpu;
  gpu.bdf = bdf;
  gpu.vendor = vendor;
  gpu.pci_class = 0x030000;
  gpu.name = name;
  gpu.discrete = discrete;
  gpu.power_state = "D0";
  gpu.runtime_status = "active";
  return gpu;
}

inline model::NvmlDevice nvml_device(const Gpu& gpu, int index) {
  model::NvmlDevice device;
  device.index = index;
  device.name = gpu.name;
  device.uuid = gpu.uuid;
  device.bdf = gpu.bdf;
  device.compute_capability = gpu.compute_capability;
  device.cores = gpu.cores;
  device.max_clock_sm_mhz = 2400;
  device.memory_total_bytes = gpu.memory_bytes;
  device.memory_free_bytes = gpu.memory_bytes - kGib / 2;
  device.memory_used_bytes = kGib / 2;
  device.utilization_gpu = 0;
  device.compute_mode = 0;
  device.mig_enabled = false;
  device.processes = std::vector<model::GpuProcess>{};
  return device;
}

inline model::CudaDevice cuda_device(const Gpu& gpu, int ordinal) {
  model::CudaDevice device;
  device.ordinal = ordinal;
  device.name = gpu.name;
  device.uuid = gpu.uuid;
  device.bdf = gpu.bdf;
  device.compute_capability = gpu.compute_capability;
  device.memory_total_bytes = gpu.memory_bytes;
  device.integrated = !gpu.discrete;
  device.context = 0;
  device.launch = 0;
  return device;
}

/// Puts a healthy NVIDIA GPU into every layer of a machine.
inline void add_nvidia(model::Machine& machine, const Gpu& gpu = {}) {
  const int index = static_cast<int>(machine.gpus.size());
  auto pci = pci_gpu(gpu.bdf, model::kNvidia, gpu.name, gpu.discrete);
  pci.driver = "nvidia";
  machine.hardware.gpus.push_back(pci);
  machine.nvml.devices.push_back(nvml_device(gpu, index));
  machine.cuda.answers.devices.push_back(cuda_device(gpu, index));
  machine.torch.answers.devices.push_back({gpu.name, gpu.uuid, gpu.compute_capability, std::string("ok")});
  machine.torch.answers.device_count = index + 1;
  machine.gpus.push_back({gpu.bdf, gpu.uuid, gpu.name, index, index});
}

/// Puts the GPU inside an Intel processor beside the others.
inline void add_intel(model::Machine& machine) {
  auto pci = pci_gpu("0000:00:02.0", model::kIntel, "Intel graphics", false);
  pci.driver = "i915";
  machine.hardware.gpus.push_back(pci);
}

inline model::Machine machine_with_gpu() {
  auto machine = machine_without_gpu();
  add_nvidia(machine);
  return machine;
}

}  // namespace fullwatt::tests
