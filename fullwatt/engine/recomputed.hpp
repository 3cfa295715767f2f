#pragma once

#include <functional>

#include <torch/nn/module.h>

namespace fullwatt::engine {

using Forward = std::function<at::Tensor(const at::Tensor&)>;

/// What `forward` makes of the input, without keeping what backward needs of it: backward computes it once more. The
/// gradients are the same to the bit. `module` holds the parameters and buffers that it uses; buffers are changed by
/// the first computation alone. Both must live until backward is done, and forward must not change the input.
///
/// `draws`: forward draws random numbers, which must be the same again. A CUDA graph cannot hold that, since a
/// generator's state cannot be set back while one is recorded; it throws c10::Error then.
at::Tensor recomputed(const torch::nn::Module& module, Forward forward, const at::Tensor& input, bool draws);

/// The same for a whole module.
template <class Module>
at::Tensor recomputed(Module& module, const at::Tensor& input, bool draws = false) {
  return recomputed(module, [&module](const at::Tensor& x) { return module.forward(x); }, input, draws);
}

}  // namespace fullwatt::engine
