#include "fullwatt/vendor/nvml/memory.hpp"

namespace fullwatt::vendor::nvml {
namespace {

template <class Memory>
MemoryReading from(const Reading<Memory>& memory) {
  return {.total_bytes = derive<std::uint64_t>(memory, &Memory::total_bytes),
          .used_bytes = derive<std::uint64_t>(memory, &Memory::used_bytes),
          .free_bytes = derive<std::uint64_t>(memory, &Memory::free_bytes),
          .reserved_bytes = {}};
}

}  // namespace

MemoryReading read_memory(const Functions& nvml, abi::Device handle) {
  abi::MemoryV2 request{};
  request.version = abi::struct_version<abi::MemoryV2>(2);
  const auto newer = nvml.ask_with({"nvmlDeviceGetMemoryInfo_v2"}, request, handle);
  auto memory = newer ? from(newer) : from(nvml.ask<abi::Memory>({"nvmlDeviceGetMemoryInfo"}, handle));
  memory.reserved_bytes = derive<std::uint64_t>(newer, &abi::MemoryV2::reserved_bytes);
  return memory;
}

}  // namespace fullwatt::vendor::nvml
