#pragma once

#include <string>
#include <vector>

#include "fullwatt/base/library.hpp"

namespace fullwatt::vendor::nvrtc {

/// NVIDIA's compiler for CUDA C++ as a library.
class Compiler {
 public:
  /// `library` is NVRTC itself, or one that brings it along.
  static base::Result<Compiler> load(const std::string& library);

  /// For an architecture as 90, which is 9.0: its machine code, or, where NVRTC is older than that, PTX for the newest
  /// one that it knows, which the driver compiles. The error holds the beginning of the compiler's log.
  base::Result<std::string> compile(const std::string& source, const std::vector<std::string>& options,
                                    int architecture) const;

 private:
  explicit Compiler(base::Library library) : library_(std::move(library)) {}
  /// Those that NVRTC knows, ascending.
  std::vector<int> architectures() const;

  base::Library library_;
};

}  // namespace fullwatt::vendor::nvrtc
