/// A stand-in for the driver's libnvidia-ml.so.1. It answers from the file that FULLWATT_FAKE_NVML names, which holds
/// model::to_json(model::Nvml). More knobs in the environment:
///   FULLWATT_FAKE_NVML_HANG=1             nvmlInit_v2 never returns
///   FULLWATT_FAKE_NVML_CRASH=1            nvmlInit_v2 aborts
///   FULLWATT_FAKE_NVML_PROCESS_BYTES=32   the size of one process entry, as early 535 drivers had it
/// Built with FULLWATT_FAKE_NVML_OLD it has only the names of an older driver.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include <unistd.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/model/json.hpp"
#include "fullwatt/model/nvml.hpp"
#include "fullwatt/vendor/nvml/abi.hpp"

namespace fullwatt::vendor::nvml::abi {

/// What a handle points to: a GPU, or one of its slices.
struct DeviceHandle {
  const model::NvmlDevice* gpu = nullptr;
  const model::MigSlice* slice = nullptr;
  std::deque<DeviceHandle> slices;
};

}  // namespace fullwatt::vendor::nvml::abi

namespace {

namespace abi = fullwatt::vendor::nvml::abi;
namespace base = fullwatt::base;
namespace model = fullwatt::model;
namespace code = fullwatt::model::nvml_code;
using abi::Device;
using abi::Return;
using base::Reading;

#define FAKE extern "C" [[gnu::visibility("default")]] Return

struct Machine {
  model::Nvml nvml;
  std::deque<abi::DeviceHandle> handles;
};

/// The machine between nvmlInit_v2 and nvmlShutdown.
std::optional<Machine>& machine() {
  static std::optional<Machine> current;
  return current;
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}

base::Result<model::Nvml> answers() {
  const char* path = std::getenv("FULLWATT_FAKE_NVML");
  if (path == nullptr) return base::fail(base::Error::Kind::bad_input, "FULLWATT_FAKE_NVML is not set");
  std::ifstream file(path);
  const auto json = model::Json::parse(file, nullptr, false);
  if (json.is_discarded()) return base::fail(base::Error::Kind::bad_input, std::string(path) + " holds no JSON");
  return model::from_json<model::Nvml>(json);
}

void start(model::Nvml nvml) {
  auto& now = machine().emplace(Machine{std::move(nvml), {}});
  for (const auto& gpu : now.nvml.devices) {
    auto& handle = now.handles.emplace_back(abi::DeviceHandle{&gpu, nullptr, {}});
    for (const auto& slice : gpu.mig_slices) handle.slices.push_back({&gpu, &slice, {}});
  }
}

Return code_of(const base::Absence& absence) {
  if (absence.code != 0) return absence.code;
  if (absence.reason == base::Absent::unsupported) return code::kNotSupported;
  if (absence.reason == base::Absent::no_permission) return code::kNoPermission;
  return code::kUnknown;
}

/// Success when all are there, else the code of the first that is not: one call answers all of its values or none.
template <class... T>
Return code_of(const Reading<T>&... readings) {
  Return first = code::kSuccess;
  ((first = first == code::kSuccess && !readings ? code_of(readings.error()) : first), ...);
  return first;
}

template <class T, class Out>
Return give(const Reading<T>& reading, Out* out) {
  if (reading) *out = static_cast<Out>(*reading);
  return code_of(reading);
}

template <class T, class Out>
Return give_pair(const Reading<T>& first, Out* first_out, const Reading<T>& second, Out* second_out) {
  if (first && second) {
    *first_out = static_cast<Out>(*first);
    *second_out = static_cast<Out>(*second);
  }
  return code_of(first, second);
}

Return give_text(const Reading<std::string>& text, char* out, unsigned length) {
  if (!text) return code_of(text);
  if (text->size() >= length) return abi::kInsufficientSize;
  std::memcpy(out, text->c_str(), text->size() + 1);
  return code::kSuccess;
}

/// The version of a struct that has one must be the one this library knows.
template <class Struct>
bool understands(const Struct& given, unsigned version) {
  return given.version == abi::struct_version<Struct>(version);
}

Return give_address(const Reading<std::string>& bdf, abi::PciInfo* out) {
  if (!bdf) return code_of(bdf);
  return std::sscanf(bdf->c_str(), "%x:%x:%x", &out->domain, &out->bus, &out->device) == 3 ? code::kSuccess
                                                                                           : code::kUnknown;
}

std::size_t process_bytes(std::size_t usual) {
  const char* wanted = std::getenv("FULLWATT_FAKE_NVML_PROCESS_BYTES");
  return wanted != nullptr ? base::number<std::size_t>(wanted).value_or(usual) : usual;
}

Return give_processes(const model::NvmlDevice& gpu, std::string_view kind, unsigned* count, void* out,
                      std::size_t usual_bytes) {
  if (!gpu.processes) return code_of(gpu.processes);
  const auto wanted = [&](const model::GpuProcess& process) { return process.kind == kind; };
  const auto room = std::exchange(*count, static_cast<unsigned>(std::ranges::count_if(*gpu.processes, wanted)));
  if (*count > room) return abi::kInsufficientSize;
  auto* at = static_cast<unsigned char*>(out);
  const std::size_t bytes = process_bytes(usual_bytes);
  for (const auto& process : *gpu.processes) {
    if (!wanted(process)) continue;
    abi::ProcessHead head{};
    head.pid = static_cast<unsigned>(process.pid);
    head.used_bytes = process.memory_bytes ? *process.memory_bytes : abi::kNotAvailable;
    std::memset(at, 0xff, bytes);
    std::memcpy(at, &head, sizeof head);
    at += bytes;
  }
  return code::kSuccess;
}

Return give_memory(const Reading<std::uint64_t>& total, const Reading<std::uint64_t>& free,
                   const Reading<std::uint64_t>& used, auto* out) {
  const Return answer = code_of(total, free, used);
  if (answer != code::kSuccess) return answer;
  out->total_bytes = *total;
  out->free_bytes = *free;
  out->used_bytes = *used;
  return answer;
}

/// A slice is described by total and free alone.
Return give_memory(Device device, auto* out) {
  if (device->slice == nullptr) {
    const auto& gpu = *device->gpu;
    return give_memory(gpu.memory_total_bytes, gpu.memory_free_bytes, gpu.memory_used_bytes, out);
  }
  const auto& slice = *device->slice;
  return give_memory(slice.memory_total_bytes, slice.memory_free_bytes, Reading<std::uint64_t>(0U), out);
}

}  // namespace

FAKE nvmlInit_v2() {
  while (is_set("FULLWATT_FAKE_NVML_HANG")) ::pause();
  if (is_set("FULLWATT_FAKE_NVML_CRASH")) std::abort();
  auto nvml = answers();
  if (!nvml) {
    std::fprintf(stderr, "fake NVML: %s\n", nvml.error().message.c_str());
    return code::kUnknown;
  }
  const Return answer = nvml->init ? *nvml->init : code_of(nvml->init);
  if (answer == code::kSuccess) start(std::move(*nvml));
  return answer;
}

FAKE nvmlShutdown() {
  if (!machine()) return abi::kUninitialized;
  machine().reset();
  return code::kSuccess;
}

FAKE nvmlSystemGetDriverVersion(char* out, unsigned length) {
  return machine() ? give_text(machine()->nvml.driver_version, out, length) : abi::kUninitialized;
}

FAKE nvmlSystemGetCudaDriverVersion_v2(int* out) {
  return machine() ? give(machine()->nvml.cuda_version, out) : abi::kUninitialized;
}

FAKE nvmlDeviceGetCount_v2(unsigned* out) {
  if (!machine()) return abi::kUninitialized;
  *out = static_cast<unsigned>(machine()->handles.size());
  return code::kSuccess;
}

FAKE nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* out) {
  if (!machine()) return abi::kUninitialized;
  if (index >= machine()->handles.size()) return abi::kInvalidArgument;
  *out = &machine()->handles[index];
  return (*out)->gpu->handle_code;
}

FAKE nvmlDeviceGetName(Device device, char* out, unsigned length) {
  return give_text(device->slice != nullptr ? device->slice->name : device->gpu->name, out, length);
}

FAKE nvmlDeviceGetUUID(Device device, char* out, unsigned length) {
  return give_text(device->slice != nullptr ? device->slice->uuid : device->gpu->uuid, out, length);
}

FAKE nvmlDeviceGetPciInfo_v2(Device device, abi::PciInfo* out) {
  return give_address(device->gpu->bdf, out);
}

FAKE nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  const auto& capability = device->gpu->compute_capability;
  if (!capability) return code_of(capability);
  return std::sscanf(capability->c_str(), "%d.%d", major, minor) == 2 ? code::kSuccess : code::kUnknown;
}

FAKE nvmlDeviceGetMemoryInfo(Device device, abi::Memory* out) {
  return give_memory(device, out);
}

FAKE nvmlDeviceGetUtilizationRates(Device device, abi::Utilization* out) {
  return give_pair(device->gpu->utilization_gpu, &out->gpu, device->gpu->utilization_memory, &out->memory);
}

FAKE nvmlDeviceGetTemperature(Device device, unsigned, unsigned* out) {
  return give(device->gpu->temperature_c, out);
}

FAKE nvmlDeviceGetTemperatureThreshold(Device device, unsigned which, unsigned* out) {
  return which == abi::kThresholdSlowdown ? give(device->gpu->slowdown_c, out) : abi::kInvalidArgument;
}

FAKE nvmlDeviceGetClockInfo(Device device, unsigned which, unsigned* out) {
  return give(which == abi::kClockSm ? device->gpu->clock_sm_mhz : device->gpu->clock_memory_mhz, out);
}

FAKE nvmlDeviceGetMaxClockInfo(Device device, unsigned which, unsigned* out) {
  return give(which == abi::kClockSm ? device->gpu->max_clock_sm_mhz : device->gpu->max_clock_memory_mhz, out);
}

FAKE nvmlDeviceGetPowerManagementLimitConstraints(Device device, unsigned* least, unsigned* most) {
  return give_pair(device->gpu->power_min_mw, least, device->gpu->power_max_mw, most);
}

FAKE nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long* out) {
  return give(device->gpu->clock_events, out);
}

FAKE nvmlDeviceGetEccMode(Device device, unsigned* current, unsigned* pending) {
  return give_pair(device->gpu->ecc_enabled, current, device->gpu->ecc_enabled, pending);
}

FAKE nvmlDeviceGetTotalEccErrors(Device device, unsigned, unsigned, unsigned long long* out) {
  return give(device->gpu->ecc_uncorrected, out);
}

FAKE nvmlDeviceGetRemappedRows(Device device, unsigned* correctable, unsigned* uncorrectable, unsigned* pending,
                               unsigned* failed) {
  *correctable = 0;
  const Return rows = give(device->gpu->remapped_rows, uncorrectable);
  const Return flags = give_pair(device->gpu->remap_pending, pending, device->gpu->remap_failed, failed);
  return rows != code::kSuccess ? rows : flags;
}

FAKE nvmlDeviceGetFieldValues(Device device, int count, abi::FieldValue* values) {
  for (auto* value = values; value != values + count; ++value) {
    value->code = value->field == abi::kFieldRecoveryAction ? give(device->gpu->recovery_action, &value->number)
                                                            : abi::kInvalidArgument;
  }
  return code::kSuccess;
}

/// One for every 20 ms of the last 2 seconds.
FAKE nvmlDeviceGetSamples(Device device, unsigned type, unsigned long long after_us, unsigned* value_type,
                          unsigned* count, abi::Sample* samples) {
  constexpr unsigned long long kPeriod = 20'000;
  constexpr unsigned long long kKept = 2'000'000;
  unsigned milliwatts = 0;
  if (type != abi::kSamplesOfPower) return abi::kInvalidArgument;
  if (const auto failed = give(device->gpu->power_mw, &milliwatts); failed != code::kSuccess) return failed;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto now_us =
      static_cast<unsigned long long>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
  unsigned found = 0;
  for (auto at = std::max(after_us, now_us - kKept) / kPeriod * kPeriod + kPeriod; at <= now_us; at += kPeriod)
    if (found < *count) samples[found++] = {at, milliwatts, 0};
  *value_type = 1;
  *count = found;
  return found > 0 ? code::kSuccess : abi::kNotFound;
}

FAKE nvmlDeviceGetMigMode(Device device, unsigned* current, unsigned* pending) {
  return give_pair(device->gpu->mig_enabled, current, device->gpu->mig_pending, pending);
}

/// One place more than there are slices: the real library also has places without one.
FAKE nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned* out) {
  *out = device->gpu->mig_enabled.is(true) ? static_cast<unsigned>(device->slices.size()) + 1 : 0;
  return code::kSuccess;
}

FAKE nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device* out) {
  if (index >= device->slices.size()) return abi::kNotFound;
  *out = &device->slices[index];
  return code::kSuccess;
}

FAKE nvmlDeviceGetGridLicensableFeatures_v4(Device device, abi::LicensableFeatures* out) {
  out->licensing_supported = 1;
  out->count = 1;
  return give(device->gpu->vgpu_licensed, &out->features.front().licensed);
}

FAKE nvmlDeviceGetComputeRunningProcesses(Device device, unsigned* count, void* out) {
  return give_processes(*device->gpu, "compute", count, out, abi::kProcessInfoBytes[0]);
}

FAKE nvmlDeviceGetGraphicsRunningProcesses(Device device, unsigned* count, void* out) {
  return give_processes(*device->gpu, "graphics", count, out, abi::kProcessInfoBytes[0]);
}

#define FAKE_NUMBER(function, field)            \
  FAKE function(Device device, unsigned* out) { \
    return give(device->gpu->field, out);       \
  }

FAKE_NUMBER(nvmlDeviceGetPowerUsage, power_mw)
FAKE_NUMBER(nvmlDeviceGetPowerManagementLimit, power_limit_mw)
FAKE_NUMBER(nvmlDeviceGetEnforcedPowerLimit, power_enforced_mw)
FAKE_NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, power_default_mw)
FAKE_NUMBER(nvmlDeviceGetPerformanceState, performance_state)
FAKE_NUMBER(nvmlDeviceGetComputeMode, compute_mode)
FAKE_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, pcie_width)
FAKE_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, pcie_max_width)
FAKE_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, pcie_generation)
FAKE_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, pcie_max_generation)
FAKE_NUMBER(nvmlDeviceGetPcieReplayCounter, pcie_replays)
FAKE_NUMBER(nvmlDeviceGetVirtualizationMode, virtualization)
FAKE_NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, retired_pages_pending)
FAKE_NUMBER(nvmlDeviceGetPersistenceMode, persistence)
FAKE_NUMBER(nvmlDeviceGetDisplayActive, display_active)

#ifndef FULLWATT_FAKE_NVML_OLD

FAKE_NUMBER(nvmlDeviceGetNumGpuCores, cores)
FAKE_NUMBER(nvmlDeviceGetPowerSource, power_source)

FAKE nvmlDeviceGetPciInfo_v3(Device device, abi::PciInfo* out) {
  return give_address(device->gpu->bdf, out);
}

FAKE nvmlDeviceGetMemoryInfo_v2(Device device, abi::MemoryV2* out) {
  if (!understands(*out, 2)) return abi::kArgumentVersionMismatch;
  const Return reserved = device->slice == nullptr ? give(device->gpu->memory_reserved_bytes, &out->reserved_bytes) : 0;
  return reserved != code::kSuccess ? reserved : give_memory(device, out);
}

FAKE nvmlDeviceGetTemperatureV(Device device, abi::TemperatureV1* out) {
  return understands(*out, 1) ? give(device->gpu->temperature_c, &out->celsius) : abi::kArgumentVersionMismatch;
}

FAKE nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long* out) {
  return give(device->gpu->clock_events, out);
}

FAKE nvmlDeviceGetGpuFabricInfoV(Device device, abi::FabricInfoV2* out) {
  return understands(*out, 2) ? give(device->gpu->fabric_state, &out->state) : abi::kArgumentVersionMismatch;
}

FAKE nvmlDeviceGetGpuFabricInfo(Device device, abi::FabricInfo* out) {
  return give(device->gpu->fabric_state, &out->state);
}

FAKE nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, void* out) {
  return give_processes(*device->gpu, "compute", count, out, abi::kProcessInfoBytes[1]);
}

FAKE nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned* count, void* out) {
  return give_processes(*device->gpu, "graphics", count, out, abi::kProcessInfoBytes[1]);
}

#endif
