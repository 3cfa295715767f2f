#pragma once

#include <cstdint>
#include <string>

#include "fullwatt/base/error.hpp"

/// CUPTI's activity records in short windows: on, off, and nothing left behind. There is one CUPTI in a process and it
/// has one seat, hence functions and no object.
namespace fullwatt::vendor::cupti {

/// One record, in no vendor's layout. Times are CLOCK_MONOTONIC nanoseconds where the library can take our clock.
struct Activity {
  enum class Kind { kernel, copy, fill, call };
  Kind kind = Kind::kernel;
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  std::uint64_t correlation = 0;
  std::uint32_t stream = 0;
  std::uint32_t device = 0;
  std::uint32_t thread = 0;  ///< the operating system's, calls only
  std::uint64_t bytes = 0;
  const char* name = "";  ///< of a kernel or a call
  std::uint8_t copy_kind = 0;
  std::uint8_t source_kind = 0;
  std::uint8_t destination_kind = 0;
  std::uint32_t blocks = 0;
  std::uint32_t threads = 0;
};

/// Takes the records; called on any thread, one at a time.
using Sink = void (*)(const Activity&);

/// Whether CUDA is in use in this process: initialised, with a context. Initialises nothing itself.
bool cuda_in_use();

/// Waits until the GPU has done all it was given. Before a start and, by itself, at a stop: so that a window holds
/// whole steps, neither the tail of the one before nor half of its own last one.
void drain();
/// Starts recording kernels, copies and fills; with `calls` the API calls too. Fails with the reason when CUPTI is
/// absent, too old, or held by someone else.
base::Result<void> start(bool calls, Sink sink);
/// Delivers what is left, stops and takes CUPTI out of the process again. Safe without a start.
void stop();
/// Records that CUPTI itself lost since the start.
std::uint64_t dropped();

}  // namespace fullwatt::vendor::cupti
