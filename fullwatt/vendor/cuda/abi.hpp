#pragma once

#include <cstddef>

/// The part of the CUDA driver API that is called here, declared by hand so that no CUDA toolkit is needed to build.
/// Source of every type and number: cuda.h of CUDA 12.9; the driver keeps them stable across versions.
namespace fullwatt::vendor::cuda::abi {

using Result = int;  ///< CUresult
using Device = int;  ///< CUdevice
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;
using Address = unsigned long long;  ///< CUdeviceptr
using Attribute = int;               ///< CUdevice_attribute

struct Uuid {
  char bytes[16];
};

constexpr Attribute kMultiprocessorCount = 16;
constexpr Attribute kKernelExecTimeout = 17;
constexpr Attribute kIntegrated = 18;
constexpr Attribute kComputeCapabilityMajor = 75;
constexpr Attribute kComputeCapabilityMinor = 76;

using Init = Result(unsigned flags);
using DriverGetVersion = Result(int* version);
using DeviceGetCount = Result(int* count);
using DeviceGet = Result(Device* device, int ordinal);
using DeviceGetName = Result(char* name, int size, Device device);
using DeviceGetUuid = Result(Uuid* uuid, Device device);
using DeviceGetPciBusId = Result(char* address, int size, Device device);
using DeviceTotalMem = Result(std::size_t* bytes, Device device);
using DeviceGetAttribute = Result(int* value, Attribute attribute, Device device);
using DeviceCanAccessPeer = Result(int* possible, Device device, Device peer);
using PrimaryContextRetain = Result(Context* context, Device device);
using PrimaryContextRelease = Result(Device device);
using ContextPush = Result(Context context);
using ContextPop = Result(Context* context);
using ContextSynchronize = Result();
using ModuleLoadData = Result(Module* module, const void* image);
using ModuleUnload = Result(Module module);
using ModuleGetFunction = Result(Function* function, Module module, const char* name);
using MemoryAllocate = Result(Address* memory, std::size_t bytes);
using MemoryFree = Result(Address memory);
using CopyToDevice = Result(Address to, const void* from, std::size_t bytes);
using CopyToHost = Result(void* to, Address from, std::size_t bytes);
using LaunchKernel = Result(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** parameters,
                            void** extra);

}  // namespace fullwatt::vendor::cuda::abi
