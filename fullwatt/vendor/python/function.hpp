#pragma once

#include <array>
#include <cstdint>

namespace fullwatt::vendor::python {

constexpr std::size_t kArguments = 5;
/// Takes five numbers and gives one.
using NumberFunction = std::uint32_t (*)(const std::array<std::uint64_t, kArguments>&);

/// A Python function that calls `function`, as a new reference: several times as fast as through ctypes, which
/// converts by description. There is one for each process; null where the interpreter lacks what it needs. To be called
/// with the interpreter's lock held. Called with anything but five numbers it raises a TypeError;
/// a negative one counts as 0.
void* function_of(NumberFunction function);

}  // namespace fullwatt::vendor::python
