#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

#include "fullwatt/engine/kernels/kernel_set.hpp"

namespace fullwatt::engine {

struct StepSettings;
class Task;

/// The kernels of kernels/batch_norm.cu.
extern const KernelSource kNormKernels;

/// What follows a norm.
struct AfterNorm {
  at::Tensor residual;  ///< is added, where there is one
  bool has_relu = true;
};

/// relu(norm(convolution(x)) + residual). With kernels all but the convolution is theirs: in training, where channels
/// lie side by side and are a multiple of the kernels' width, and all numbers are of their type; else it is torch's
/// own, as without kernels. Gradients can be had once, not those of gradients.
at::Tensor convolved_and_normed(const c10::intrusive_ptr<KernelSet>& kernels, torch::nn::Conv2dImpl& convolution,
                                torch::nn::BatchNorm2dImpl& norm, const at::Tensor& x, const AfterNorm& after = {});

/// The same of what a convolution gave without its bias, which may be undefined. Nothing where the kernels do not fit.
std::optional<at::Tensor> fused_norm(const c10::intrusive_ptr<KernelSet>& kernels, torch::nn::BatchNorm2dImpl& norm,
                                     const at::Tensor& convolved, const at::Tensor& convolution_bias,
                                     const AfterNorm& after);

/// Holds the kernels against torch's own on a small problem of each kind, forward and backward. The error says what
/// differs.
base::Result<void> verify_norms(const c10::intrusive_ptr<KernelSet>& kernels);

/// How many of a network's batch norms have channels for the kernels, and of how many.
struct FusedNorms {
  int fitting = 0;
  int all = 0;
};
FusedNorms fused_norms(const torch::nn::Module& network, const KernelSet& kernels);

/// Gives a model the kernels for its device and its precision, once they are verified. Says for how many norms, or why
/// not.
base::Result<std::string> fuse_norms(Task& task, at::Device device, const StepSettings& settings);

}  // namespace fullwatt::engine
