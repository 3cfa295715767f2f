#pragma once

#include <string>

#include "fullwatt/model/cuda.hpp"

namespace fullwatt::vendor::cuda {

/// On more devices than this no kernel is run: each context costs a few hundred megabytes and up to a second.
constexpr int kLaunchLimit = 16;

/// Loads libcuda, asks it about every visible device and runs one real kernel on each. It may hang, crash or wake a
/// sleeping GPU, so call it in a process of its own.
model::CudaAnswers read(const std::string& library_name = "libcuda.so.1");

}  // namespace fullwatt::vendor::cuda
