#include "fullwatt/engine/backends/backends.hpp"

namespace fullwatt::engine {

base::Result<Backend> make_nccl(const Store&, const Place&, std::chrono::milliseconds) {
  return base::fail(
      base::Error::Kind::unavailable, "several processes with GPUs need NCCL, which fullwatt-train was built without",
      "Build it for a PyTorch with CUDA that pip installed, with the package nvidia-cuda-cccl beside it.");
}

}  // namespace fullwatt::engine
