#define USE_C10D_NCCL  // torch's library has it

#include <cstdlib>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "fullwatt/engine/backends/backends.hpp"

namespace fullwatt::engine {
namespace {

using c10d::ProcessGroupNCCL;

/// When a process is lost, torch's watchdog would end this one by abort(). It is to end the exchange alone and at once,
/// so that the next call fails: kernels that wait for the lost process are aborted, nothing is dumped. What a user has
/// set stays.
void leave_errors_to_us() {
  setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", std::to_string(c10d::CleanUpOnly).c_str(), 0);
  setenv("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", 0);
  setenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "0", 0);
}

}  // namespace

base::Result<Backend> make_nccl(const Store& store, const Place& place, std::chrono::milliseconds timeout) {
  leave_errors_to_us();
  auto options = ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<ProcessGroupNCCL>(store, place.rank, place.size, options);
}

}  // namespace fullwatt::engine
