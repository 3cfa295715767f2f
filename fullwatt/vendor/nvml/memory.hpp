#pragma once

#include <cstdint>

#include "fullwatt/vendor/nvml/functions.hpp"

namespace fullwatt::vendor::nvml {

/// The memory of a GPU or a MIG slice. `used_bytes` includes the reserved part only where that part is not told.
struct MemoryReading {
  Reading<std::uint64_t> total_bytes;
  Reading<std::uint64_t> used_bytes;
  Reading<std::uint64_t> free_bytes;
  Reading<std::uint64_t> reserved_bytes;
};

MemoryReading read_memory(const Functions& nvml, abi::Device handle);

}  // namespace fullwatt::vendor::nvml
