#pragma once

#include <array>
#include <cstddef>

/// The part of NVML's C interface that we call. Every layout, version tag and number is that of nvml.h (API 12 and 13).
/// C enumerations are `unsigned` here: the ABI is the same and a newer driver may answer values we do not know.
namespace fullwatt::vendor::nvml::abi {

using Return = int;  ///< nvmlReturn_t; the codes that findings speak of are in model::nvml_code
struct DeviceHandle;
using Device = DeviceHandle*;  ///< nvmlDevice_t

constexpr Return kUninitialized = 1;
constexpr Return kInvalidArgument = 2;
constexpr Return kNotFound = 6;
constexpr Return kInsufficientSize = 7;
constexpr Return kFunctionNotFound = 13;
constexpr Return kArgumentVersionMismatch = 25;
constexpr Return kDeprecated = 26;

/// The largest text buffer of the functions we call (NVML_DEVICE_NAME_V2_BUFFER_SIZE, NVML_DEVICE_UUID_V2_BUFFER_SIZE).
constexpr std::size_t kTextBytes = 96;
/// NVML_VALUE_NOT_AVAILABLE, which is -1, in an unsigned field.
constexpr unsigned long long kNotAvailable = ~0ULL;

constexpr unsigned kTemperatureGpu = 0;
constexpr unsigned kThresholdSlowdown = 1;
constexpr unsigned kClockSm = 1;
constexpr unsigned kClockMemory = 2;
constexpr unsigned kErrorUncorrected = 1;
constexpr unsigned kEccSinceDriverLoad = 0;  ///< NVML_VOLATILE_ECC
constexpr unsigned kPerformanceStateUnknown = 32;
constexpr unsigned kVirtualizationVgpu = 2;
constexpr unsigned kSamplesOfPower = 0;         ///< NVML_TOTAL_POWER_SAMPLES
constexpr unsigned kFraction = 0;               ///< NVML_VALUE_TYPE_DOUBLE
constexpr unsigned kFieldRecoveryAction = 230;  ///< NVML_FI_DEV_GET_GPU_RECOVERY_ACTION

/// NVML_STRUCT_VERSION: how a caller tells the library which layout it hands over.
template <class Struct>
constexpr unsigned struct_version(unsigned version) {
  return static_cast<unsigned>(sizeof(Struct)) | (version << 24U);
}

/// nvmlPciInfo_t
struct PciInfo {
  std::array<char, 16> bus_id_legacy;
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_and_vendor_id;
  unsigned subsystem_id;
  std::array<char, 32> bus_id;
};
static_assert(sizeof(PciInfo) == 68);

/// nvmlSample_t; its value is a union, of which power uses the first four bytes.
struct Sample {
  unsigned long long at_us;  ///< since 1970
  unsigned number;
  unsigned unused;
};
static_assert(sizeof(Sample) == 16);

/// nvmlUtilization_t
struct Utilization {
  unsigned gpu;
  unsigned memory;
};

/// nvmlMemory_t: `used_bytes` includes what the driver reserved.
struct Memory {
  unsigned long long total_bytes;
  unsigned long long free_bytes;
  unsigned long long used_bytes;
};

/// nvmlMemory_v2_t: `used_bytes` does not include what the driver reserved.
struct MemoryV2 {
  unsigned version;
  unsigned long long total_bytes;
  unsigned long long reserved_bytes;
  unsigned long long free_bytes;
  unsigned long long used_bytes;
};
static_assert(struct_version<MemoryV2>(2) == 0x02000028);

/// nvmlTemperature_v1_t
struct TemperatureV1 {
  unsigned version;
  unsigned sensor;
  int celsius;
};
static_assert(struct_version<TemperatureV1>(1) == 0x0100000c);

/// The start that nvmlProcessInfo_v1_t (16 bytes, all of it), nvmlProcessInfo_v2_t (24) and nvmlProcessDetail_v1_t (32)
/// have in common.
struct ProcessHead {
  unsigned pid;
  unsigned long long used_bytes;
};
constexpr std::array<std::size_t, 3> kProcessInfoBytes{16, 24, 32};
static_assert(sizeof(ProcessHead) == kProcessInfoBytes.front());

/// nvmlFieldValue_t; the value is read as the unsigned int that the fields we ask for hold.
struct FieldValue {
  unsigned field;
  unsigned scope;
  long long timestamp_us;
  long long latency_us;
  unsigned value_type;
  Return code;
  union {
    unsigned number;
    unsigned long long whole;
  };
};
static_assert(sizeof(FieldValue) == 40);

/// nvmlGpuFabricInfo_t
struct FabricInfo {
  std::array<unsigned char, 16> cluster_uuid;
  Return status;
  unsigned clique;
  unsigned char state;
};
static_assert(sizeof(FabricInfo) == 28);

/// nvmlGpuFabricInfo_v2_t
struct FabricInfoV2 {
  unsigned version;
  std::array<unsigned char, 16> cluster_uuid;
  Return status;
  unsigned clique;
  unsigned char state;
  unsigned health_mask;
};
static_assert(struct_version<FabricInfoV2>(2) == 0x02000024);

/// nvmlGridLicenseExpiry_t
struct LicenseExpiry {
  unsigned year;
  std::array<unsigned short, 5> month_to_second;
  unsigned char status;
};

/// nvmlGridLicensableFeature_t
struct LicensableFeature {
  unsigned code;
  unsigned licensed;
  std::array<char, 128> license_info;
  std::array<char, 128> product_name;
  unsigned enabled;
  LicenseExpiry expiry;
};

/// nvmlGridLicensableFeatures_t
struct LicensableFeatures {
  int licensing_supported;
  unsigned count;
  std::array<LicensableFeature, 3> features;
};
static_assert(sizeof(LicensableFeatures) == 860);

}  // namespace fullwatt::vendor::nvml::abi
