#include "fullwatt/vendor/cuda/cuda.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>

#include "fullwatt/base/library.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/vendor/cuda/calls.hpp"
#include "fullwatt/vendor/cuda/launch.hpp"

namespace fullwatt::vendor::cuda {
namespace {

using base::Reading;
using Clock = std::chrono::steady_clock;

Reading<std::string> loaded_file(const base::Library& library, const std::string& name) {
  constexpr const char* kSymbol = "cuInit";
  auto path = library.path_of(kSymbol);
  if (path.empty()) return base::absent(base::Absent::unsupported, name + " has no " + kSymbol);
  return path;
}

/// Never unmaps this libcuda: a thread of the driver runs on when all is given back (seen with 580.159.04).
void keep_loaded(const std::string& path) {
  ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

Reading<int> driver_version(const Calls& calls) {
  int version = 0;
  const auto code = calls.driver_version(&version);
  if (code.is(0)) return version;
  return code ? base::absent(base::Absent::failed, "cuDriverGetVersion failed", *code) : code.error();
}

int device_count(const Calls& calls) {
  int count = 0;
  return calls.device_count(&count).is(0) ? count : 0;
}

/// 0 when the driver does not tell: all that is asked this way is 0 where it does not apply.
int attribute(const Calls& calls, abi::Attribute which, abi::Device device) {
  int value = 0;
  return calls.device_attribute(&value, which, device).is(0) ? value : 0;
}

std::string device_name(const Calls& calls, abi::Device device) {
  std::array<char, 256> name{};
  return calls.device_name(name.data(), name.size() - 1, device).is(0) ? name.data() : "";
}

/// libcuda does not say whether a device is a MIG slice; whoever uses one usually named it here.
bool mig_is_asked_for() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  for (const auto entry : base::split(visible != nullptr ? visible : "", ',')) {
    if (base::trim(entry).starts_with("MIG-")) return true;
  }
  return false;
}

std::string uuid_text(const abi::Uuid& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = mig_is_asked_for() ? "MIG" : "GPU";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 0xFU];
  }
  return text;
}

std::string device_uuid(const Calls& calls, abi::Device device) {
  abi::Uuid uuid{};
  return calls.device_uuid(&uuid, device).is(0) ? uuid_text(uuid) : "";
}

std::string device_pci_address(const Calls& calls, abi::Device device) {
  std::array<char, 32> address{};
  const auto code = calls.device_pci_address(address.data(), address.size() - 1, device);
  return code.is(0) ? base::lower(address.data()) : "";
}

std::string compute_capability(const Calls& calls, abi::Device device) {
  const int major = attribute(calls, abi::kComputeCapabilityMajor, device);
  const int minor = attribute(calls, abi::kComputeCapabilityMinor, device);
  return major == 0 ? "" : std::to_string(major) + "." + std::to_string(minor);
}

std::uint64_t total_memory(const Calls& calls, abi::Device device) {
  std::size_t bytes = 0;
  return calls.device_memory(&bytes, device).is(0) ? bytes : 0;
}

void read_facts(const Calls& calls, abi::Device handle, model::CudaDevice& device) {
  device.name = device_name(calls, handle);
  device.uuid = device_uuid(calls, handle);
  device.bdf = device_pci_address(calls, handle);
  device.compute_capability = compute_capability(calls, handle);
  device.memory_total_bytes = total_memory(calls, handle);
  device.multiprocessors = attribute(calls, abi::kMultiprocessorCount, handle);
  device.integrated = attribute(calls, abi::kIntegrated, handle) != 0;
  device.watchdog = attribute(calls, abi::kKernelExecTimeout, handle) != 0;
}

void run_check(const Calls& calls, abi::Device handle, Clock::time_point started, model::CudaDevice& device) {
  const auto done = launch(calls, handle);
  device.context = done.context;
  device.launch = done.kernel;
  if (!device.launch.is(0)) return;
  device.launch_ms = std::chrono::duration<double, std::milli>(Clock::now() - started).count();
}

model::CudaDevice read_device(const Calls& calls, int ordinal, Clock::time_point started) {
  model::CudaDevice device;
  device.ordinal = ordinal;
  abi::Device handle = 0;
  // A device that cannot even be named gives its code where a context's would stand.
  if (const auto code = calls.device_get(&handle, ordinal); !code.is(0)) {
    device.context = code;
    return device;
  }
  read_facts(calls, handle, device);
  if (ordinal < kLaunchLimit) run_check(calls, handle, started, device);
  return device;
}

bool can_access(const Calls& calls, int ordinal, int other) {
  abi::Device device = 0;
  abi::Device peer = 0;
  int possible = 0;
  return calls.device_get(&device, ordinal).is(0) && calls.device_get(&peer, other).is(0) &&
         calls.device_can_access_peer(&possible, device, peer).is(0) && possible != 0;
}

std::vector<int> peers_of(const Calls& calls, int ordinal, int count) {
  std::vector<int> peers;
  for (int other = 0; other < count; ++other) {
    if (other != ordinal && can_access(calls, ordinal, other)) peers.push_back(other);
  }
  return peers;
}

std::vector<model::CudaDevice> read_devices(const Calls& calls, Clock::time_point started) {
  std::vector<model::CudaDevice> devices;
  const int count = device_count(calls);
  devices.reserve(static_cast<std::size_t>(std::max(count, 0)));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    devices.push_back(read_device(calls, ordinal, ordinal == 0 ? started : Clock::now()));
  }
  for (auto& device : devices) device.peers = peers_of(calls, device.ordinal, count);
  return devices;
}

}  // namespace

model::CudaAnswers read(const std::string& library_name) {
  model::CudaAnswers answers;
  const auto library = base::Library::load(library_name);
  if (!library) {
    const auto why = base::absent(base::Absent::not_there, library.error().message);
    answers.library = why;
    answers.init = why;
    return answers;
  }
  answers.library = loaded_file(*library, library_name);
  if (answers.library) keep_loaded(*answers.library);
  const Calls calls(*library);
  const auto started = Clock::now();
  answers.init = calls.init(0);
  answers.driver_version = driver_version(calls);  // answers without cuInit too
  if (answers.init.is(0)) answers.devices = read_devices(calls, started);
  return answers;
}

}  // namespace fullwatt::vendor::cuda
