#include "fullwatt/engine/cross_entropy.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/nll_loss.h>
#include <torch/csrc/autograd/custom_function.h>

#include "fullwatt/engine/kernels/sources.hpp"
#include "fullwatt/engine/kernels/verification.hpp"
#include "fullwatt/engine/step.hpp"
#include "fullwatt/engine/task.hpp"

namespace fullwatt::engine {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Kernels = c10::intrusive_ptr<KernelSet>;

constexpr std::int64_t kThreads = 512;  // as in cross_entropy.cu

/// In the order of `kNames`.
enum class LossKernel : std::uint8_t { forward, backward };
constexpr std::array kNames{"cross_entropy_forward", "cross_entropy_backward"};

const auto* targets_of(const at::Tensor& targets) {
  static_assert(sizeof(long long) == sizeof(std::int64_t));
  return targets.const_data_ptr();
}

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const Kernels& kernels, const at::Tensor& scores,
                            const at::Tensor& targets) {
    const auto floats = scores.options().dtype(at::kFloat);
    const auto losses = at::empty({scores.size(0)}, floats);
    const auto log_sums = at::empty({scores.size(0)}, floats);
    kernels->launch(LossKernel::forward, {.x = scores.size(0), .threads = kThreads}, scores.const_data_ptr(),
                    targets_of(targets), losses.mutable_data_ptr<float>(), log_sums.mutable_data_ptr<float>(),
                    packs_of(scores, *kernels));
    context->save_for_backward({scores, targets, log_sums});
    context->saved_data["kernels"] = at::IValue::make_capsule(kernels);
    return losses.mean();
  }

  static variable_list backward(AutogradContext* context, const variable_list& of_outputs) {
    const auto kernels = c10::static_intrusive_pointer_cast<KernelSet>(context->saved_data.at("kernels").toCapsule());
    const auto tensors = context->get_saved_variables();
    const auto& scores = tensors[0];
    const auto of_scores = at::empty_like(scores);
    kernels->launch(LossKernel::backward, {.x = scores.size(0), .threads = kThreads}, scores.const_data_ptr(),
                    targets_of(tensors[1]), tensors[2].const_data_ptr<float>(),
                    of_outputs.front().const_data_ptr<float>(), of_scores.mutable_data_ptr(),
                    packs_of(scores, *kernels));
    return {at::Tensor(), of_scores, at::Tensor()};
  }

 private:
  /// Of a row.
  static int packs_of(const at::Tensor& scores, const KernelSet& kernels) {
    return static_cast<int>(scores.size(1) / kernels.wide());
  }
};

bool fits(const KernelSet& kernels, const at::Tensor& scores, const at::Tensor& targets) {
  return scores.dim() == 2 && scores.numel() > 0 && scores.is_contiguous() && kernels.can_read(scores) &&
         scores.size(1) % kernels.wide() == 0 && targets.scalar_type() == at::kLong && targets.is_contiguous() &&
         targets.device() == kernels.device() && targets.numel() == scores.size(0);
}

at::Tensor plain_cross_entropy(const at::Tensor& scores, const at::Tensor& targets) {
  return at::nll_loss(at::log_softmax(scores, 1, at::kFloat), targets);
}

}  // namespace

const KernelSource kLossKernels{kCrossEntropySource, kNames};

at::Tensor cross_entropy(const Kernels& kernels, const at::Tensor& scores, const at::Tensor& targets) {
  if (!kernels || !fits(*kernels, scores, targets)) return plain_cross_entropy(scores, targets);
  return CrossEntropy::apply(kernels, scores, targets);
}

base::Result<void> verify_loss(const Kernels& kernels) {
  return verified([&]() -> base::Result<void> {
    constexpr std::int64_t kRows = 3;
    const auto classes = (kThreads + 5) * kernels->wide();  // more than threads take at once
    const auto scores = waves({kRows, classes}, 1.7, *kernels);
    const auto targets = at::arange(kRows, at::TensorOptions(kernels->device()).dtype(at::kLong)) * (classes / kRows);
    if (!fits(*kernels, scores, targets)) return refuse_their_problem();
    const auto ours = scores.detach().requires_grad_();
    const auto torchs = scores.to(at::kFloat).detach().requires_grad_();
    const auto our_loss = cross_entropy(kernels, ours, targets);
    const auto torchs_loss = plain_cross_entropy(torchs, targets);
    our_loss.backward();
    torchs_loss.backward();
    if (auto same = compare(*kernels, "losses", our_loss.detach(), torchs_loss.detach()); !same) return same;
    return compare(*kernels, "gradients of scores", ours.grad(), torchs.grad());
  });
}

base::Result<std::string> fuse_loss(Task& task, at::Device device, const StepSettings& settings) {
  const auto kernels = KernelSet::make(kLossKernels, device, numbers_in(settings.precision));
  if (!kernels) return std::unexpected(kernels.error());
  if (const auto same = verify_loss(*kernels); !same) return std::unexpected(same.error());
  task.fuse_loss(*kernels);
  return "cross-entropy";
}

}  // namespace fullwatt::engine
