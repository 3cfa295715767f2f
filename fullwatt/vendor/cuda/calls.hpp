#pragma once

#include <string>

#include "fullwatt/base/library.hpp"
#include "fullwatt/base/reading.hpp"
#include "fullwatt/vendor/cuda/abi.hpp"

namespace fullwatt::vendor::cuda {

template <class Signature>
class Call;

/// One function of libcuda: answers with its CUresult, or "unsupported" when this libcuda does not have it.
template <class... Arguments>
class Call<abi::Result(Arguments...)> {
 public:
  /// `older` is the name under which earlier drivers offer the same function.
  Call(const base::Library& library, const char* name, const char* older = nullptr)
      : name_(name), function_(library.find<abi::Result(Arguments...)>(name)) {
    if (function_ == nullptr && older != nullptr) function_ = library.find<abi::Result(Arguments...)>(older);
  }

  base::Reading<int> operator()(Arguments... arguments) const {
    if (function_ == nullptr)
      return base::absent(base::Absent::unsupported, std::string("the library has no ") + name_);
    return function_(arguments...);
  }

 private:
  const char* name_;
  abi::Result (*function_)(Arguments...);
};

/// The functions of one loaded libcuda; must not outlive it.
struct Calls {
  explicit Calls(const base::Library& from) : library(from) {}

  const base::Library& library;
  Call<abi::Init> init{library, "cuInit"};
  Call<abi::DriverGetVersion> driver_version{library, "cuDriverGetVersion"};

  Call<abi::DeviceGetCount> device_count{library, "cuDeviceGetCount"};
  Call<abi::DeviceGet> device_get{library, "cuDeviceGet"};
  Call<abi::DeviceGetName> device_name{library, "cuDeviceGetName"};
  Call<abi::DeviceGetUuid> device_uuid{library, "cuDeviceGetUuid_v2", "cuDeviceGetUuid"};
  Call<abi::DeviceGetPciBusId> device_pci_address{library, "cuDeviceGetPCIBusId"};
  Call<abi::DeviceTotalMem> device_memory{library, "cuDeviceTotalMem_v2"};
  Call<abi::DeviceGetAttribute> device_attribute{library, "cuDeviceGetAttribute"};
  Call<abi::DeviceCanAccessPeer> device_can_access_peer{library, "cuDeviceCanAccessPeer"};

  Call<abi::PrimaryContextRetain> context_retain{library, "cuDevicePrimaryCtxRetain"};
  Call<abi::PrimaryContextRelease> context_release{library, "cuDevicePrimaryCtxRelease_v2",
                                                   "cuDevicePrimaryCtxRelease"};
  Call<abi::ContextPush> context_push{library, "cuCtxPushCurrent_v2"};
  Call<abi::ContextPop> context_pop{library, "cuCtxPopCurrent_v2"};
  Call<abi::ContextSynchronize> synchronize{library, "cuCtxSynchronize"};

  Call<abi::ModuleLoadData> module_load{library, "cuModuleLoadData"};
  Call<abi::ModuleUnload> module_unload{library, "cuModuleUnload"};
  Call<abi::ModuleGetFunction> module_function{library, "cuModuleGetFunction"};
  Call<abi::MemoryAllocate> memory_allocate{library, "cuMemAlloc_v2"};
  Call<abi::MemoryFree> memory_free{library, "cuMemFree_v2"};
  Call<abi::CopyToDevice> copy_to_device{library, "cuMemcpyHtoD_v2"};
  Call<abi::CopyToHost> copy_to_host{library, "cuMemcpyDtoH_v2"};
  Call<abi::LaunchKernel> launch_kernel{library, "cuLaunchKernel"};
};

}  // namespace fullwatt::vendor::cuda
