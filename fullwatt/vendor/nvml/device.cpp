#include "fullwatt/vendor/nvml/device.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "fullwatt/vendor/nvml/memory.hpp"
#include "fullwatt/vendor/nvml/processes.hpp"

namespace fullwatt::vendor::nvml {
namespace {

using base::Absent;
using model::NvmlDevice;

/// Fields that one function answers with one number.
struct Number {
  const char* function;
  Reading<int> NvmlDevice::* field;
};
constexpr Number kNumbers[] = {
    {"nvmlDeviceGetNumGpuCores", &NvmlDevice::cores},
    {"nvmlDeviceGetPowerUsage", &NvmlDevice::power_mw},
    {"nvmlDeviceGetPowerManagementLimit", &NvmlDevice::power_limit_mw},
    {"nvmlDeviceGetEnforcedPowerLimit", &NvmlDevice::power_enforced_mw},
    {"nvmlDeviceGetPowerManagementDefaultLimit", &NvmlDevice::power_default_mw},
    {"nvmlDeviceGetPowerSource", &NvmlDevice::power_source},
    {"nvmlDeviceGetComputeMode", &NvmlDevice::compute_mode},
    {"nvmlDeviceGetCurrPcieLinkWidth", &NvmlDevice::pcie_width},
    {"nvmlDeviceGetMaxPcieLinkWidth", &NvmlDevice::pcie_max_width},
    {"nvmlDeviceGetCurrPcieLinkGeneration", &NvmlDevice::pcie_generation},
    {"nvmlDeviceGetMaxPcieLinkGeneration", &NvmlDevice::pcie_max_generation},
    {"nvmlDeviceGetPcieReplayCounter", &NvmlDevice::pcie_replays},
    {"nvmlDeviceGetVirtualizationMode", &NvmlDevice::virtualization},
};

/// Fields for which the function also wants to know which sensor or clock is meant.
struct SelectedNumber {
  const char* function;
  unsigned which;
  Reading<int> NvmlDevice::* field;
};
constexpr SelectedNumber kSelectedNumbers[] = {
    {"nvmlDeviceGetTemperatureThreshold", abi::kThresholdSlowdown, &NvmlDevice::slowdown_c},
    {"nvmlDeviceGetClockInfo", abi::kClockSm, &NvmlDevice::clock_sm_mhz},
    {"nvmlDeviceGetClockInfo", abi::kClockMemory, &NvmlDevice::clock_memory_mhz},
    {"nvmlDeviceGetMaxClockInfo", abi::kClockSm, &NvmlDevice::max_clock_sm_mhz},
    {"nvmlDeviceGetMaxClockInfo", abi::kClockMemory, &NvmlDevice::max_clock_memory_mhz},
};

/// Fields that one function answers with on or off.
struct Flag {
  const char* function;
  Reading<bool> NvmlDevice::* field;
};
constexpr Flag kFlags[] = {
    {"nvmlDeviceGetRetiredPagesPendingStatus", &NvmlDevice::retired_pages_pending},
    {"nvmlDeviceGetPersistenceMode", &NvmlDevice::persistence},
    {"nvmlDeviceGetDisplayActive", &NvmlDevice::display_active},
};

void read_tables(const Functions& nvml, abi::Device handle, NvmlDevice& device) {
  for (const auto& [function, field] : kNumbers) device.*field = number(nvml.ask<unsigned>({function}, handle));
  for (const auto& [function, which, field] : kSelectedNumbers) {
    device.*field = number(nvml.ask<unsigned>({function}, handle, which));
  }
  for (const auto& [function, field] : kFlags) device.*field = flag(nvml.ask<unsigned>({function}, handle));
}

/// The address as sysfs writes it. NVML's own text has an eight-digit domain; a GPU is always function 0.
std::string sysfs_address(const abi::PciInfo& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
}

void read_identity(const Functions& nvml, abi::Device handle, NvmlDevice& device) {
  device.name = nvml.ask_text({"nvmlDeviceGetName"}, handle);
  device.uuid = nvml.ask_text({"nvmlDeviceGetUUID"}, handle);
  const auto pci = nvml.ask<abi::PciInfo>({"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"}, handle);
  device.bdf = derive<std::string>(pci, sysfs_address);
  const auto capability = nvml.ask_pair<int>({"nvmlDeviceGetCudaComputeCapability"}, handle);
  device.compute_capability = derive<std::string>(
      capability, [](const auto& version) { return fmt::format("{}.{}", version.first, version.second); });
}

void read_utilization(const Functions& nvml, abi::Device handle, NvmlDevice& device) {
  const auto utilization = nvml.ask<abi::Utilization>({"nvmlDeviceGetUtilizationRates"}, handle);
  device.utilization_gpu = number(derive<unsigned>(utilization, &abi::Utilization::gpu));
  device.utilization_memory = number(derive<unsigned>(utilization, &abi::Utilization::memory));
}

Reading<int> temperature(const Functions& nvml, abi::Device handle) {
  const abi::TemperatureV1 request{abi::struct_version<abi::TemperatureV1>(1), abi::kTemperatureGpu, 0};
  const auto answer = nvml.ask_with({"nvmlDeviceGetTemperatureV"}, request, handle);
  if (answer) return answer->celsius;
  return number(nvml.ask<unsigned>({"nvmlDeviceGetTemperature"}, handle, abi::kTemperatureGpu));
}

void read_clocks_and_power(const Functions& nvml, abi::Device handle, NvmlDevice& device) {
  device.temperature_c = temperature(nvml, handle);
  device.performance_state = number(nvml.ask<unsigned>({"nvmlDeviceGetPerformanceState"}, handle));
  if (device.performance_state.is(abi::kPerformanceStateUnknown)) {
    device.performance_state = base::absent(Absent::unsupported, "performance state unknown");
  }
  device.clock_events = nvml.ask<unsigned long long>(
      {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"}, handle);
  const auto limits = nvml.ask_pair<unsigned>({"nvmlDeviceGetPowerManagementLimitConstraints"}, handle);
  device.power_min_mw = derive<int>(limits, [](const auto& range) { return number(range.first); });
  device.power_max_mw = derive<int>(limits, [](const auto& range) { return number(range.second); });
}

struct RemappedRows {
  unsigned correctable = 0;
  unsigned uncorrectable = 0;
  unsigned pending = 0;
  unsigned failed = 0;
};

Reading<RemappedRows> remapped_rows(const Functions& nvml, abi::Device handle) {
  RemappedRows rows;
  const auto outcome = nvml.call({"nvmlDeviceGetRemappedRows"}, handle, &rows.correctable, &rows.uncorrectable,
                                 &rows.pending, &rows.failed);
  if (!outcome) return outcome.error();
  return rows;
}

/// Some GeForce cards answer zeros instead of "not supported" (leptonai/gpud PR#351): passed on as answered.
void read_remapped_rows(const Functions& nvml, abi::Device handle, NvmlDevice& device) {
  const auto rows = remapped_rows(nvml, handle);
  device.remapped_rows = derive<int>(rows, [](const auto& all) { return number(all.correctable + all.uncorrectable); });
  device.remap_pending = derive<bool>(rows, [](const auto& all) { return all.pending != 0; });
  device.remap_failed = derive<bool>(rows, [](const auto& all) { return all.failed != 0; });
}

Reading<int> recovery_action(const Functions& nvml, abi::Device handle) {
  abi::FieldValue value{};
  value.field = abi::kFieldRecoveryAction;
  if (const auto outcome = nvml.call({"nvmlDeviceGetFieldValues"}, handle, 1, &value); !outcome) return outcome.error();
  // A driver from before this field takes its number for a wrong argument.
  if (value.code == abi::kInvalidArgument) return base::absent(Absent::unsupported, {}, value.code);
  if (value.code != 0) return absence_of(value.code);
  return number(value.number);
}

void read_health(const Functions& nvml, abi::Device handle, NvmlDevice& device) {
  const auto ecc = nvml.ask_pair<unsigned>({"nvmlDeviceGetEccMode"}, handle);
  device.ecc_enabled = derive<bool>(ecc, [](const auto& mode) { return mode.first != 0; });
  device.ecc_uncorrected = nvml.ask<unsigned long long>({"nvmlDeviceGetTotalEccErrors"}, handle, abi::kErrorUncorrected,
                                                        abi::kEccSinceDriverLoad);
  read_remapped_rows(nvml, handle, device);
  device.recovery_action = recovery_action(nvml, handle);
}

model::MigSlice read_slice(const Functions& nvml, abi::Device handle) {
  model::MigSlice slice;
  slice.uuid = nvml.ask_text({"nvmlDeviceGetUUID"}, handle).value_or("");
  slice.name = nvml.ask_text({"nvmlDeviceGetName"}, handle).value_or("");
  const auto memory = read_memory(nvml, handle);
  slice.memory_total_bytes = memory.total_bytes;
  slice.memory_free_bytes = memory.free_bytes;
  return slice;
}

/// `mig_pending` is the mode that the next reset brings. The places for slices are numbered through; those without a
/// slice answer "not found".
void read_mig(const Functions& nvml, abi::Device handle, NvmlDevice& device) {
  const auto mode = nvml.ask_pair<unsigned>({"nvmlDeviceGetMigMode"}, handle);
  device.mig_enabled = derive<bool>(mode, [](const auto& modes) { return modes.first != 0; });
  device.mig_pending = derive<bool>(mode, [](const auto& modes) { return modes.second != 0; });
  if (!device.mig_enabled.is(true)) return;
  const unsigned places = nvml.ask<unsigned>({"nvmlDeviceGetMaxMigDeviceCount"}, handle).value_or(0);
  for (unsigned place = 0; place < places; ++place) {
    const auto slice = nvml.ask<abi::Device>({"nvmlDeviceGetMigDeviceHandleByIndex"}, handle, place);
    if (slice) device.mig_slices.push_back(read_slice(nvml, *slice));
  }
}

Reading<int> fabric_state(const Functions& nvml, abi::Device handle) {
  abi::FabricInfoV2 request{};
  request.version = abi::struct_version<abi::FabricInfoV2>(2);
  const auto answer = nvml.ask_with({"nvmlDeviceGetGpuFabricInfoV"}, request, handle);
  if (answer) return answer->state;
  return derive<int>(nvml.ask<abi::FabricInfo>({"nvmlDeviceGetGpuFabricInfo"}, handle), &abi::FabricInfo::state);
}

Reading<bool> vgpu_licensed(const Functions& nvml, abi::Device handle) {
  const auto answer = nvml.ask<abi::LicensableFeatures>({"nvmlDeviceGetGridLicensableFeatures_v4"}, handle);
  return derive<bool>(answer, [](const abi::LicensableFeatures& all) -> Reading<bool> {
    if (all.licensing_supported == 0) return base::absent(Absent::unsupported, "no vGPU licensing here");
    const auto end = all.features.begin() + std::min<std::size_t>(all.count, all.features.size());
    return std::any_of(all.features.begin(), end, [](const auto& feature) { return feature.licensed != 0; });
  });
}

void read_all(const Functions& nvml, abi::Device handle, NvmlDevice& device) {
  read_identity(nvml, handle, device);
  read_tables(nvml, handle, device);
  const auto memory = read_memory(nvml, handle);
  device.memory_total_bytes = memory.total_bytes;
  device.memory_used_bytes = memory.used_bytes;
  device.memory_free_bytes = memory.free_bytes;
  device.memory_reserved_bytes = memory.reserved_bytes;
  read_utilization(nvml, handle, device);
  read_clocks_and_power(nvml, handle, device);
  read_health(nvml, handle, device);
  read_mig(nvml, handle, device);
  device.fabric_state = fabric_state(nvml, handle);
  if (device.virtualization.is(abi::kVirtualizationVgpu)) device.vgpu_licensed = vgpu_licensed(nvml, handle);
  device.processes = read_processes(nvml, handle);
}

}  // namespace

NvmlDevice read_device(const Functions& nvml, unsigned index) {
  NvmlDevice device;
  device.index = static_cast<int>(index);
  const auto handle = nvml.ask<abi::Device>({"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"}, index);
  if (handle) {
    read_all(nvml, *handle, device);
  } else {
    const int code = handle.error().code;
    device.handle_code = code != 0 ? code : abi::kFunctionNotFound;
  }
  return device;
}

}  // namespace fullwatt::vendor::nvml
