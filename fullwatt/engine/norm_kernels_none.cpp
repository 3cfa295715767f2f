#include "fullwatt/engine/norm_kernels.hpp"

namespace fullwatt::engine {

base::Result<c10::intrusive_ptr<NormKernels>> NormKernels::make(at::Device, at::ScalarType) {
  return base::fail(base::Error::Kind::unavailable, "this PyTorch is built without CUDA");
}

}  // namespace fullwatt::engine
