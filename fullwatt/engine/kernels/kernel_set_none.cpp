#include "fullwatt/engine/kernels/kernel_set.hpp"

namespace fullwatt::engine {

base::Result<c10::intrusive_ptr<KernelSet>> KernelSet::make(const KernelSource&, at::Device, at::ScalarType) {
  return base::fail(base::Error::Kind::unavailable, "this PyTorch is built without CUDA");
}

}  // namespace fullwatt::engine
