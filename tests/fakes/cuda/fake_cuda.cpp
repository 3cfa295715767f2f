/// A libcuda for tests. It answers what the JSON file named by FULLWATT_FAKE_CUDA says, a model::CudaAnswers, and runs
/// the one kernel it knows on the host. FULLWATT_FAKE_CUDA_HANG, _CRASH and _WRONG_RESULT set to 1 make it misbehave.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/model/cuda.hpp"
#include "fullwatt/model/json.hpp"
#include "fullwatt/vendor/cuda/abi.hpp"
#include "fullwatt/vendor/cuda/kernel.hpp"

namespace {

namespace abi = fullwatt::vendor::cuda::abi;
namespace base = fullwatt::base;
namespace cuda_code = fullwatt::model::cuda_code;
namespace kernel = fullwatt::vendor::cuda::kernel;
namespace model = fullwatt::model;

/// CUresult values that no diagnosis needs, but a driver gives.
constexpr int kInvalidValue = 1;
constexpr int kInvalidImage = 200;
constexpr int kInvalidContext = 201;
constexpr int kNotFound = 500;
constexpr int kNotSupported = 801;

struct Driver {
  bool initialised = false;
  model::CudaAnswers answers;
  std::vector<const model::CudaDevice*> current;  ///< the stack of contexts, by their device
  int live = 0;                                   ///< contexts, modules and buffers not given back yet
};

Driver& driver() {
  static Driver the_one;
  return the_one;
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}

/// A test that gives no usable file is wrong, and has to see it.
model::CudaAnswers broken_test(const std::string& why) {
  std::fprintf(stderr, "fake libcuda: FULLWATT_FAKE_CUDA: %s\n", why.c_str());
  model::CudaAnswers answers;
  answers.init = cuda_code::kUnknown;
  return answers;
}

model::CudaAnswers load_answers() {
  const char* path = std::getenv("FULLWATT_FAKE_CUDA");
  if (path == nullptr) return broken_test("not set");
  std::ifstream file(path);
  const auto json = model::Json::parse(file, nullptr, false);
  if (json.is_discarded()) return broken_test(std::string("no JSON in ") + path);
  auto answers = model::from_json<model::CudaAnswers>(json);
  return answers ? *answers : broken_test(answers.error().message);
}

const model::CudaDevice* find_device(abi::Device device) {
  const auto& devices = driver().answers.devices;
  const auto at = std::ranges::find(devices, device, &model::CudaDevice::ordinal);
  return driver().initialised && at != devices.end() ? &*at : nullptr;
}

const model::CudaDevice* current_device() {
  return driver().current.empty() ? nullptr : driver().current.back();
}

/// An empty text in the answers stands for a driver that does not tell.
int give_text(const std::string& text, char* to, int size) {
  if (text.empty()) return kNotSupported;
  if (size <= 0) return kInvalidValue;
  std::snprintf(to, static_cast<std::size_t>(size), "%s", text.c_str());
  return cuda_code::kSuccess;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'a' && c <= 'f' ? static_cast<char>(c - 32) : c; });
  return text;
}

/// The bytes of "GPU-0f1e…" or "MIG-0f1e…"; false when the text is none.
bool parse_uuid(std::string text, abi::Uuid& uuid) {
  text.erase(0, text.find('-') + 1);
  std::erase(text, '-');
  if (text.size() != 2 * sizeof uuid.bytes) return false;
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    const auto byte = base::number<std::uint8_t>(text.substr(2 * i, 2), 16);
    if (!byte) return false;
    uuid.bytes[i] = static_cast<char>(*byte);
  }
  return true;
}

/// Part 0 or 1 of a compute capability such as "9.0".
int capability_part(const model::CudaDevice& device, std::size_t part) {
  const auto parts = base::split(device.compute_capability, '.');
  return part < parts.size() ? base::number<int>(parts[part]).value_or(0) : 0;
}

int attribute(const model::CudaDevice& device, abi::Attribute which) {
  switch (which) {
    case abi::kMultiprocessorCount:
      return device.multiprocessors;
    case abi::kKernelExecTimeout:
      return device.watchdog ? 1 : 0;
    case abi::kIntegrated:
      return device.integrated ? 1 : 0;
    case abi::kComputeCapabilityMajor:
      return capability_part(device, 0);
    case abi::kComputeCapabilityMinor:
      return capability_part(device, 1);
    default:
      return 0;
  }
}

/// Codes 200 to 299 are about the program, so a driver gives them on loading it; others come from running it.
bool fails_on_loading(int code) {
  return code >= 200 && code < 300;
}

bool computes_wrongly(const model::CudaDevice& device) {
  return is_set("FULLWATT_FAKE_CUDA_WRONG_RESULT") ||
         (!device.launch && device.launch.error().reason == base::Absent::failed);
}

/// What the PTX in kernel.hpp does, for one thread.
void run_thread(const std::uint32_t* input, std::uint32_t* output, std::uint32_t index) {
  output[index] = input[index] * 3 + index;
}

template <class T>
T* pointer(abi::Address address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace

extern "C" {

/// Not the vendor's: how many resources the caller still holds.
int fullwatt_fake_cuda_live() {
  return driver().live;
}

abi::Result cuInit(unsigned flags) {
  if (is_set("FULLWATT_FAKE_CUDA_CRASH")) std::abort();
  while (is_set("FULLWATT_FAKE_CUDA_HANG")) ::pause();
  if (flags != 0) return kInvalidValue;
  driver() = Driver{};
  driver().answers = load_answers();
  const int code = driver().answers.init.value_or(cuda_code::kUnknown);
  driver().initialised = code == cuda_code::kSuccess;
  return code;
}

abi::Result cuDriverGetVersion(int* version) {
  const auto answer = load_answers().driver_version;
  if (!answer) return answer.error().code != 0 ? answer.error().code : cuda_code::kUnknown;
  *version = *answer;
  return cuda_code::kSuccess;
}

abi::Result cuDeviceGetCount(int* count) {
  if (!driver().initialised) return cuda_code::kNotInitialized;
  *count = static_cast<int>(driver().answers.devices.size());
  return cuda_code::kSuccess;
}

abi::Result cuDeviceGet(abi::Device* device, int ordinal) {
  if (!driver().initialised) return cuda_code::kNotInitialized;
  if (find_device(ordinal) == nullptr) return cuda_code::kInvalidDevice;
  *device = ordinal;
  return cuda_code::kSuccess;
}

abi::Result cuDeviceGetName(char* name, int size, abi::Device device) {
  const auto* found = find_device(device);
  return found == nullptr ? cuda_code::kInvalidDevice : give_text(found->name, name, size);
}

abi::Result cuDeviceGetUuid_v2(abi::Uuid* uuid, abi::Device device) {
  const auto* found = find_device(device);
  if (found == nullptr) return cuda_code::kInvalidDevice;
  return parse_uuid(found->uuid, *uuid) ? cuda_code::kSuccess : kNotSupported;
}

/// Upper case, so that callers show that they bring it into the form of sysfs.
abi::Result cuDeviceGetPCIBusId(char* address, int size, abi::Device device) {
  const auto* found = find_device(device);
  return found == nullptr ? cuda_code::kInvalidDevice : give_text(upper(found->bdf), address, size);
}

abi::Result cuDeviceTotalMem_v2(std::size_t* bytes, abi::Device device) {
  const auto* found = find_device(device);
  if (found == nullptr) return cuda_code::kInvalidDevice;
  *bytes = found->memory_total_bytes;
  return cuda_code::kSuccess;
}

abi::Result cuDeviceGetAttribute(int* value, abi::Attribute which, abi::Device device) {
  const auto* found = find_device(device);
  if (found == nullptr) return cuda_code::kInvalidDevice;
  *value = attribute(*found, which);
  return cuda_code::kSuccess;
}

abi::Result cuDeviceCanAccessPeer(int* possible, abi::Device device, abi::Device peer) {
  const auto* found = find_device(device);
  if (found == nullptr || find_device(peer) == nullptr) return cuda_code::kInvalidDevice;
  *possible = std::ranges::find(found->peers, peer) != found->peers.end() ? 1 : 0;
  return cuda_code::kSuccess;
}

abi::Result cuDevicePrimaryCtxRetain(abi::Context* context, abi::Device device) {
  const auto* found = find_device(device);
  if (found == nullptr) return cuda_code::kInvalidDevice;
  if (const int code = found->context.value_or(cuda_code::kSuccess); code != cuda_code::kSuccess) return code;
  *context = reinterpret_cast<abi::Context>(const_cast<model::CudaDevice*>(found));
  ++driver().live;
  return cuda_code::kSuccess;
}

abi::Result cuDevicePrimaryCtxRelease_v2(abi::Device device) {
  if (find_device(device) == nullptr) return cuda_code::kInvalidDevice;
  --driver().live;
  return cuda_code::kSuccess;
}

abi::Result cuCtxPushCurrent_v2(abi::Context context) {
  driver().current.push_back(reinterpret_cast<const model::CudaDevice*>(context));
  ++driver().live;
  return cuda_code::kSuccess;
}

abi::Result cuCtxPopCurrent_v2(abi::Context* context) {
  if (current_device() == nullptr) return kInvalidContext;
  *context = reinterpret_cast<abi::Context>(const_cast<model::CudaDevice*>(current_device()));
  driver().current.pop_back();
  --driver().live;
  return cuda_code::kSuccess;
}

abi::Result cuCtxSynchronize() {
  return current_device() == nullptr ? kInvalidContext : current_device()->launch.value_or(cuda_code::kSuccess);
}

abi::Result cuModuleLoadData(abi::Module* module, const void* image) {
  const auto* device = current_device();
  if (device == nullptr) return kInvalidContext;
  if (std::strcmp(static_cast<const char*>(image), kernel::kPtx) != 0) return kInvalidImage;
  if (const int code = device->launch.value_or(cuda_code::kSuccess); fails_on_loading(code)) return code;
  *module = reinterpret_cast<abi::Module>(const_cast<model::CudaDevice*>(device));
  ++driver().live;
  return cuda_code::kSuccess;
}

abi::Result cuModuleUnload(abi::Module) {
  --driver().live;
  return cuda_code::kSuccess;
}

abi::Result cuModuleGetFunction(abi::Function* function, abi::Module module, const char* name) {
  if (std::string_view(name) != kernel::kName) return kNotFound;
  *function = reinterpret_cast<abi::Function>(module);
  return cuda_code::kSuccess;
}

abi::Result cuMemAlloc_v2(abi::Address* memory, std::size_t bytes) {
  if (current_device() == nullptr) return kInvalidContext;
  *memory = reinterpret_cast<abi::Address>(std::malloc(bytes));
  ++driver().live;
  return *memory != 0 ? cuda_code::kSuccess : cuda_code::kOutOfMemory;
}

abi::Result cuMemFree_v2(abi::Address memory) {
  std::free(pointer<void>(memory));
  --driver().live;
  return cuda_code::kSuccess;
}

abi::Result cuMemcpyHtoD_v2(abi::Address to, const void* from, std::size_t bytes) {
  std::memcpy(pointer<void>(to), from, bytes);
  return cuda_code::kSuccess;
}

abi::Result cuMemcpyDtoH_v2(void* to, abi::Address from, std::size_t bytes) {
  std::memcpy(to, pointer<const void>(from), bytes);
  return cuda_code::kSuccess;
}

abi::Result cuLaunchKernel(abi::Function function, unsigned grid_x, unsigned, unsigned, unsigned block_x, unsigned,
                           unsigned, unsigned, abi::Stream, void** parameters, void**) {
  const auto* device = reinterpret_cast<const model::CudaDevice*>(function);
  if (device != current_device() || device == nullptr) return kInvalidContext;
  const auto* input = pointer<const std::uint32_t>(*static_cast<abi::Address*>(parameters[0]));
  auto* output = pointer<std::uint32_t>(*static_cast<abi::Address*>(parameters[1]));
  for (std::uint32_t index = 0; index < grid_x * block_x; ++index) run_thread(input, output, index);
  if (computes_wrongly(*device)) output[grid_x * block_x - 1] ^= 1U;  // the last element, so that all must be checked
  return cuda_code::kSuccess;
}

}  // extern "C"
