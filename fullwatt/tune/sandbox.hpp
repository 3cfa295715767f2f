#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullwatt/base/error.hpp"

/// A view of the file system in which a program may write what it likes: nothing of it reaches the user's files.
namespace fullwatt::tune {

struct SandboxOptions {
  std::string scratch;                    ///< an empty folder; the view is built below it
  std::vector<std::string> writable;      ///< folders whose real contents are written
  std::uint64_t most_bytes = 4ULL << 30;  ///< of what the program may write, in memory
};

/// Moves this process, and all that it starts, into the view. It is to have one thread only. On an error the process
/// may be half inside and should end.
base::Result<void> enter_sandbox(const SandboxOptions& options);

}  // namespace fullwatt::tune
