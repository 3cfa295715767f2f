#pragma once

#include "fullwatt/engine/kernels/kernel_set.hpp"

namespace fullwatt::engine {

struct StepSettings;
class Task;

/// The kernels of kernels/cross_entropy.cu.
extern const KernelSource kLossKernels;

/// The mean of −log softmax(scores)[target] over the rows of scores, [rows, classes], in float32: types of half its
/// size would leave two digits of it. With kernels, where rows are a multiple of their width and all numbers of their
/// type, there is no copy of the scores in float32; else, and without kernels, it is torch's own. Gradients can be had
/// once, not those of gradients.
at::Tensor cross_entropy(const c10::intrusive_ptr<KernelSet>& kernels, const at::Tensor& scores,
                         const at::Tensor& targets);

/// Holds the kernels against torch's own on a small problem. The error says what differs.
base::Result<void> verify_loss(const c10::intrusive_ptr<KernelSet>& kernels);

/// Gives a model the kernels for its device and its precision, once they are verified. Says what they compute,
/// or why they do not.
base::Result<std::string> fuse_loss(Task& task, at::Device device, const StepSettings& settings);

}  // namespace fullwatt::engine
