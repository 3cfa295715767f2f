#pragma once

#include <string>

#include "fullwatt/base/library.hpp"
#include "fullwatt/vendor/cuda/abi.hpp"

namespace fullwatt::vendor::cuda {

struct Grid {
  unsigned x = 1;
  unsigned y = 1;
  unsigned threads = 1;  ///< of a block
};

/// Machine code or PTX, loaded into the GPU of the thread's current context. It stays there until the process ends:
/// graphs may hold its kernels.
class Module {
 public:
  static base::Result<Module> load(const std::string& image, const std::string& library = "libcuda.so.1");

  base::Result<abi::Function> function(const char* name) const;
  base::Result<void> launch(abi::Function function, const Grid& grid, abi::Stream stream, void** arguments) const;

 private:
  explicit Module(base::Library library) : library_(std::move(library)) {}

  base::Library library_;
  abi::Module module_ = nullptr;
  abi::LaunchKernel* launch_ = nullptr;
};

}  // namespace fullwatt::vendor::cuda
