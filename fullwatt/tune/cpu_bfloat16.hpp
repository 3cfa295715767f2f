#pragma once

#include "fullwatt/base/files.hpp"

namespace fullwatt::tune {

/// Whether the CPUs multiply bfloat16 numbers by themselves (AVX-512 BF16, AMX, BF16 of ARM), as the kernel tells.
bool cpu_knows_bfloat16(base::Files& files);

}  // namespace fullwatt::tune
