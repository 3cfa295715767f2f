#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullwatt/base/reading.hpp"

namespace fullwatt::model {

using base::Reading;

/// NVML's own numbers; the words are in catalog/codes.
namespace nvml_code {
constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
constexpr int kNoPermission = 4;
constexpr int kInsufficientPower = 8;
constexpr int kDriverNotLoaded = 9;
constexpr int kLibraryNotFound = 12;
constexpr int kCorruptedInforom = 14;
constexpr int kGpuIsLost = 15;
constexpr int kResetRequired = 16;
constexpr int kOperatingSystem = 17;
constexpr int kVersionMismatch = 18;
constexpr int kGpuNotFound = 28;
constexpr int kUnknown = 999;
}  // namespace nvml_code

/// Why clocks are not higher (nvmlClocksEventReason*).
namespace clock_event {
constexpr std::uint64_t kIdle = 0x001;
constexpr std::uint64_t kApplicationClocks = 0x002;
constexpr std::uint64_t kSwPowerCap = 0x004;
constexpr std::uint64_t kHwSlowdown = 0x008;
constexpr std::uint64_t kSyncBoost = 0x010;
constexpr std::uint64_t kSwThermal = 0x020;
constexpr std::uint64_t kHwThermal = 0x040;
constexpr std::uint64_t kHwPowerBrake = 0x080;
constexpr std::uint64_t kDisplayClock = 0x100;
}  // namespace clock_event

struct GpuProcess {
  int pid = 0;
  Reading<std::uint64_t> memory_bytes;
  std::string kind;  ///< compute, graphics
  std::string name;  ///< from /proc, untrusted; empty when it lives in another PID namespace

  static void fields(auto& self, auto&& visit) {
    visit("pid", self.pid);
    visit("memory_bytes", self.memory_bytes);
    visit("kind", self.kind);
    visit("name", self.name);
  }
};

struct MigSlice {
  std::string uuid;
  std::string name;
  Reading<std::uint64_t> memory_total_bytes;
  Reading<std::uint64_t> memory_free_bytes;

  static void fields(auto& self, auto&& visit) {
    visit("uuid", self.uuid);
    visit("name", self.name);
    visit("memory_total_bytes", self.memory_total_bytes);
    visit("memory_free_bytes", self.memory_free_bytes);
  }
};

/// What NVML says of one GPU. Every value may be absent with its reason.
struct NvmlDevice {
  int index = 0;
  int handle_code = 0;  ///< of getting the device at all; 15 lost, 16 needs a reset
  Reading<std::string> name;
  Reading<std::string> uuid;
  Reading<std::string> bdf;
  Reading<std::string> compute_capability;  ///< "8.9"
  Reading<int> cores;
  Reading<std::uint64_t> memory_total_bytes;
  Reading<std::uint64_t> memory_used_bytes;
  Reading<std::uint64_t> memory_free_bytes;
  Reading<std::uint64_t> memory_reserved_bytes;
  Reading<int> utilization_gpu;  ///< percent of time with any kernel
  Reading<int> utilization_memory;
  Reading<int> temperature_c;
  Reading<int> slowdown_c;
  Reading<int> power_mw;
  Reading<int> power_limit_mw;
  Reading<int> power_enforced_mw;
  Reading<int> power_default_mw;
  Reading<int> power_min_mw;
  Reading<int> power_max_mw;
  Reading<int> power_source;  ///< 0 mains, 1 battery, 2 undersized adapter
  Reading<int> clock_sm_mhz;
  Reading<int> clock_memory_mhz;
  Reading<int> max_clock_sm_mhz;
  Reading<int> max_clock_memory_mhz;
  Reading<int> performance_state;
  Reading<std::uint64_t> clock_events;
  Reading<bool> ecc_enabled;
  Reading<std::uint64_t> ecc_uncorrected;  ///< since the driver was loaded
  Reading<int> remapped_rows;
  Reading<bool> remap_pending;
  Reading<bool> remap_failed;
  Reading<bool> retired_pages_pending;
  Reading<int> recovery_action;  ///< 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset, 5 IMEX
  Reading<int> compute_mode;     ///< 0 default, 2 prohibited, 3 exclusive process
  Reading<bool> persistence;
  Reading<bool> mig_enabled;
  Reading<bool> mig_pending;
  std::vector<MigSlice> mig_slices;
  Reading<int> pcie_width;
  Reading<int> pcie_max_width;
  Reading<int> pcie_generation;
  Reading<int> pcie_max_generation;
  Reading<int> pcie_replays;
  Reading<bool> display_active;
  Reading<int> fabric_state;    ///< 0 unsupported, 1 not started, 2 in progress, 3 completed
  Reading<int> virtualization;  ///< 0 none, 1 passthrough, 2 vGPU, 3 host vGPU, 4 host vSGA
  Reading<bool> vgpu_licensed;
  Reading<std::vector<GpuProcess>> processes;

  bool event(std::uint64_t bit) const { return clock_events && (*clock_events & bit) != 0; }
  static void fields(auto& self, auto&& visit) {
    visit("index", self.index);
    visit("handle_code", self.handle_code);
    visit("name", self.name);
    visit("uuid", self.uuid);
    visit("bdf", self.bdf);
    visit("compute_capability", self.compute_capability);
    visit("cores", self.cores);
    visit("memory_total_bytes", self.memory_total_bytes);
    visit("memory_used_bytes", self.memory_used_bytes);
    visit("memory_free_bytes", self.memory_free_bytes);
    visit("memory_reserved_bytes", self.memory_reserved_bytes);
    visit("utilization_gpu", self.utilization_gpu);
    visit("utilization_memory", self.utilization_memory);
    visit("temperature_c", self.temperature_c);
    visit("slowdown_c", self.slowdown_c);
    visit("power_mw", self.power_mw);
    visit("power_limit_mw", self.power_limit_mw);
    visit("power_enforced_mw", self.power_enforced_mw);
    visit("power_default_mw", self.power_default_mw);
    visit("power_min_mw", self.power_min_mw);
    visit("power_max_mw", self.power_max_mw);
    visit("power_source", self.power_source);
    visit("clock_sm_mhz", self.clock_sm_mhz);
    visit("clock_memory_mhz", self.clock_memory_mhz);
    visit("max_clock_sm_mhz", self.max_clock_sm_mhz);
    visit("max_clock_memory_mhz", self.max_clock_memory_mhz);
    visit("performance_state", self.performance_state);
    visit("clock_events", self.clock_events);
    visit("ecc_enabled", self.ecc_enabled);
    visit("ecc_uncorrected", self.ecc_uncorrected);
    visit("remapped_rows", self.remapped_rows);
    visit("remap_pending", self.remap_pending);
    visit("remap_failed", self.remap_failed);
    visit("retired_pages_pending", self.retired_pages_pending);
    visit("recovery_action", self.recovery_action);
    visit("compute_mode", self.compute_mode);
    visit("persistence", self.persistence);
    visit("mig_enabled", self.mig_enabled);
    visit("mig_pending", self.mig_pending);
    visit("mig_slices", self.mig_slices);
    visit("pcie_width", self.pcie_width);
    visit("pcie_max_width", self.pcie_max_width);
    visit("pcie_generation", self.pcie_generation);
    visit("pcie_max_generation", self.pcie_max_generation);
    visit("pcie_replays", self.pcie_replays);
    visit("display_active", self.display_active);
    visit("fabric_state", self.fabric_state);
    visit("virtualization", self.virtualization);
    visit("vgpu_licensed", self.vgpu_licensed);
    visit("processes", self.processes);
  }
};

/// Everything NVML answered. `init` absent: NVML was not asked, hung, or the library could not be loaded.
struct Nvml {
  Reading<std::string> library;  ///< the file that was loaded
  Reading<int> init;             ///< code of nvmlInit
  Reading<std::string> driver_version;
  Reading<int> cuda_version;  ///< newest CUDA the driver offers, 1000 × major + 10 × minor
  std::vector<NvmlDevice> devices;

  bool works() const { return init.is(0); }
  static void fields(auto& self, auto&& visit) {
    visit("library", self.library);
    visit("init", self.init);
    visit("driver_version", self.driver_version);
    visit("cuda_version", self.cuda_version);
    visit("devices", self.devices);
  }
};

}  // namespace fullwatt::model
