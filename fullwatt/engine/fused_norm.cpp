#include "fullwatt/engine/fused_norm.hpp"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/conv.h>

#include "fullwatt/engine/kernels/sources.hpp"
#include "fullwatt/engine/kernels/verification.hpp"
#include "fullwatt/engine/step.hpp"
#include "fullwatt/engine/task.hpp"

namespace fullwatt::engine {
namespace {

namespace nn = torch::nn;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Kernels = c10::intrusive_ptr<KernelSet>;

constexpr std::int64_t kThreads = 256;          // as in batch_norm.cu
constexpr std::int64_t kLanes = 32;             // as there
constexpr std::int64_t kLaneChannels = 16;      // as there
constexpr std::int64_t kRowsOfThread = 4;       // that it reads at once: with fewer a block would not be worth its sums
constexpr std::int64_t kWidest = 64;            // packs of a block: 1 KiB of a row, and four rows or more
constexpr std::int64_t kBlocksOfProcessor = 4;  // two to four of them run at a time, by their registers

/// In the order of `kNames`.
enum class NormKernel : std::uint8_t {
  sums,
  statistics,
  forward,
  relu_forward,
  add_forward,
  add_relu_forward,
  gradient_sums,
  relu_gradient_sums,
  add_relu_gradient_sums,
  gradients,
  backward,
  relu_backward,
};
constexpr std::array kNames{
    "batch_norm_sums",          "batch_norm_statistics",         "batch_norm_forward",
    "batch_norm_relu_forward",  "batch_norm_add_forward",        "batch_norm_add_relu_forward",
    "batch_norm_gradient_sums", "batch_norm_relu_gradient_sums", "batch_norm_add_relu_gradient_sums",
    "batch_norm_gradients",     "batch_norm_backward",           "batch_norm_relu_backward"};

std::int64_t divided_up(std::int64_t number, std::int64_t by) {
  return (number + by - 1) / by;
}

/// How a batch is spread over blocks.
struct Layout {
  Layout(const at::Tensor& x, const KernelSet& kernels)
      : channels(static_cast<int>(x.size(1))),
        groups(static_cast<int>(channels / kernels.wide())),
        rows(x.numel() / channels) {
    const auto tiles = divided_up(groups, kWidest);
    width = static_cast<int>(divided_up(groups, tiles));
    const auto rows_of_block = kThreads / width * kRowsOfThread;
    const auto most = std::max<std::int64_t>(1, kBlocksOfProcessor * kernels.processors() / tiles);
    down = {.x = std::min(divided_up(rows, rows_of_block), most), .y = tiles, .threads = kThreads};
    each_channel = {.x = divided_up(channels, kLaneChannels), .threads = kLanes * kLaneChannels};
  }

  at::Tensor partial(const at::TensorOptions& options) const { return at::empty({down.x, 2, channels}, options); }

  int channels;
  int groups;  ///< of channels, each read at once
  long long rows;
  int width = 0;  ///< groups of a block
  KernelSet::Blocks down;
  KernelSet::Blocks each_channel;
};

/// The running statistics of a norm, which may be missing, and how they move.
struct Running {
  at::Tensor mean;
  at::Tensor variance;
  double momentum = 0;
  double epsilon = 0;
};

float* numbers_of(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? tensor->mutable_data_ptr<float>() : nullptr;
}

void* place_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
}

bool is_readable(const KernelSet& kernels, const at::Tensor& tensor) {
  return kernels.can_read(tensor) && tensor.is_contiguous(at::MemoryFormat::ChannelsLast);
}

NormKernel forward_kernel(bool adds, bool has_relu) {
  if (adds) return has_relu ? NormKernel::add_relu_forward : NormKernel::add_forward;
  return has_relu ? NormKernel::relu_forward : NormKernel::forward;
}

/// The convolution's bias is an input for the sake of the running mean and of its gradient; x is without it.
struct Normed : torch::autograd::Function<Normed> {
  static at::Tensor forward(AutogradContext* context, const Kernels& kernels, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const std::optional<at::Tensor>& convolution_bias,
                            const std::optional<at::Tensor>& residual, const Running& running, bool has_relu) {
    const Layout layout(x, *kernels);
    const auto partial = layout.partial(weight.options());
    auto* const partials = partial.mutable_data_ptr<float>();
    const auto coefficients = at::empty({4, layout.channels}, weight.options());
    const auto y = at::empty_like(x);
    const bool adds = residual.has_value();
    kernels->launch(NormKernel::sums, layout.down, place_of(x), partials, layout.rows, layout.groups, layout.width);
    kernels->launch(NormKernel::statistics, layout.each_channel, partials, static_cast<int>(layout.down.x), place_of(x),
                    layout.rows, layout.channels, numbers_of(weight), numbers_of(bias), numbers_of(convolution_bias),
                    numbers_of(running.mean), numbers_of(running.variance), running.momentum, running.epsilon,
                    numbers_of(coefficients));
    kernels->launch(forward_kernel(adds, has_relu), layout.down, place_of(x), place_of(residual.value_or(at::Tensor())),
                    numbers_of(coefficients), place_of(y), layout.rows, layout.groups, layout.width);
    context->save_for_backward({x, coefficients, adds && has_relu ? y : at::Tensor()});
    context->saved_data["kernels"] = at::IValue::make_capsule(kernels);
    context->saved_data["adds"] = adds;
    context->saved_data["has_relu"] = has_relu;
    context->saved_data["has_convolution_bias"] = convolution_bias.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& of_outputs) {
    auto& saved = context->saved_data;
    const auto kernels = c10::static_intrusive_pointer_cast<KernelSet>(saved.at("kernels").toCapsule());
    const bool adds = saved.at("adds").toBool();
    const bool has_relu = saved.at("has_relu").toBool();
    const auto tensors = context->get_saved_variables();
    const auto& x = tensors[0];
    const auto& coefficients = tensors[1];
    const auto& y = tensors[2];
    const auto& given = of_outputs.front();
    const auto of_y = is_readable(*kernels, given) ? given : given.clone(at::MemoryFormat::ChannelsLast);
    const Layout layout(x, *kernels);
    const auto& options = coefficients.options();
    const auto partial = layout.partial(options);
    auto* const partials = partial.mutable_data_ptr<float>();
    const auto of_weight = at::empty({layout.channels}, options);
    const auto of_bias = at::empty({layout.channels}, options);
    const auto of_convolution_bias =
        saved.at("has_convolution_bias").toBool() ? at::empty({layout.channels}, options) : at::Tensor();
    const auto subtracted = at::empty({2, layout.channels}, options);
    const auto of_x = at::empty_like(x);
    const bool is_masked_by_output = adds && has_relu;
    const auto of_sum = is_masked_by_output ? at::empty_like(x) : of_y;  // of the norm's output and the residual
    kernels->launch(is_masked_by_output ? NormKernel::add_relu_gradient_sums
                    : has_relu          ? NormKernel::relu_gradient_sums
                                        : NormKernel::gradient_sums,
                    layout.down, place_of(x), place_of(y), place_of(of_y), numbers_of(coefficients), place_of(of_sum),
                    partials, layout.rows, layout.groups, layout.width);
    kernels->launch(NormKernel::gradients, layout.each_channel, partials, static_cast<int>(layout.down.x), layout.rows,
                    layout.channels, numbers_of(coefficients), numbers_of(of_weight), numbers_of(of_bias),
                    numbers_of(of_convolution_bias), numbers_of(subtracted));
    kernels->launch(has_relu && !adds ? NormKernel::relu_backward : NormKernel::backward, layout.down, place_of(x),
                    place_of(of_sum), numbers_of(coefficients), numbers_of(subtracted), place_of(of_x), layout.rows,
                    layout.groups, layout.width);
    return {at::Tensor(), of_x,        of_weight, of_bias, of_convolution_bias, adds ? of_sum : at::Tensor(),
            at::Tensor(), at::Tensor()};
  }
};

at::Tensor plainly_normed(nn::BatchNorm2dImpl& norm, const at::Tensor& convolved, const AfterNorm& after) {
  auto y = norm.forward(convolved);
  if (after.residual.defined()) y.add_(after.residual);
  return after.has_relu ? y.relu_() : y;
}

bool fits(const KernelSet& kernels, const nn::BatchNorm2dImpl& norm) {
  return norm.options.num_features() % kernels.wide() == 0;
}

bool is_float(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
}

/// What is known before the convolution.
bool may_fuse(const KernelSet& kernels, const nn::BatchNorm2dImpl& norm, const at::Tensor& convolution_bias) {
  return norm.is_training() && norm.options.affine() && norm.options.momentum() && fits(kernels, norm) &&
         is_float(norm.weight) && is_float(norm.bias) &&
         (!norm.running_mean.defined() || (is_float(norm.running_mean) && is_float(norm.running_var))) &&
         (!convolution_bias.defined() || is_float(convolution_bias));
}

bool can_fuse(const KernelSet& kernels, const at::Tensor& x, const at::Tensor& residual) {
  const bool has_rows = x.dim() == 4 && x.numel() > x.size(1);  // torch refuses a single one
  return has_rows && is_readable(kernels, x) &&
         (!residual.defined() || (residual.sizes() == x.sizes() && is_readable(kernels, residual)));
}

/// What a norm gives, and the gradients that it gives back.
struct Trial {
  Trial(const at::Tensor& input, const at::Tensor& added, std::int64_t channels)
      : norm(channels), x(input.detach().requires_grad_()), residual(added.detach()) {
    const at::NoGradGuard without_gradients;
    norm->to(x.device());
    norm->weight.copy_(at::linspace(0.5, 1.5, channels));
    norm->bias.copy_(at::linspace(-0.5, 0.5, channels));
    residual.requires_grad_();
  }

  void backward(at::Tensor output, const at::Tensor& of_output) {
    y = std::move(output);
    y.backward(of_output.to(y.scalar_type()));
  }
  std::vector<std::pair<const char*, at::Tensor>> results(bool adds) const {
    return {{"outputs", y.detach()},
            {"gradients of inputs", x.grad()},
            {"gradients of weights", norm->weight.grad()},
            {"gradients of biases", norm->bias.grad()},
            {"running means", norm->running_mean},
            {"running variances", norm->running_var},
            {"gradients of residuals", adds ? residual.grad() : at::zeros({1})}};
  }

  nn::BatchNorm2d norm;
  at::Tensor x;
  at::Tensor residual;
  at::Tensor y;
};

at::Tensor pictures(at::IntArrayRef sizes, double length, const KernelSet& kernels) {
  return waves(sizes, length, kernels).contiguous(at::MemoryFormat::ChannelsLast);
}

base::Result<void> verify_kind(const Kernels& kernels, bool adds, bool has_relu) {
  const auto channels = 3 * kernels->wide();
  const std::vector<std::int64_t> sizes{2, channels, 9, 7};
  const auto x = pictures(sizes, 1.7, *kernels);
  const auto residual = pictures(sizes, 0.9, *kernels);
  const auto of_y = pictures(sizes, 2.3, *kernels);
  Trial ours(x, residual, channels);
  Trial torchs(x.to(at::kFloat), residual.to(at::kFloat), channels);
  const auto added = [&](const Trial& trial) { return adds ? trial.residual : at::Tensor(); };
  const auto fused = fused_norm(kernels, *ours.norm, ours.x, {}, {.residual = added(ours), .has_relu = has_relu});
  if (!fused) return refuse_their_problem();
  ours.backward(*fused, of_y);
  torchs.backward(plainly_normed(*torchs.norm, torchs.x, {.residual = added(torchs), .has_relu = has_relu}), of_y);
  const auto expected = torchs.results(adds);
  const auto results = ours.results(adds);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto& [name, tensor] = results[i];
    if (auto same = compare(*kernels, name, tensor, expected[i].second); !same) return same;
  }
  return {};
}

}  // namespace

const KernelSource kNormKernels{kBatchNormSource, kNames};

base::Result<void> verify_norms(const Kernels& kernels) {
  return verified([&]() -> base::Result<void> {
    for (const bool adds : {false, true}) {
      for (const bool has_relu : {false, true}) {
        if (auto same = verify_kind(kernels, adds, has_relu); !same) return same;
      }
    }
    return {};
  });
}

std::optional<at::Tensor> fused_norm(const Kernels& kernels, nn::BatchNorm2dImpl& norm, const at::Tensor& convolved,
                                     const at::Tensor& convolution_bias, const AfterNorm& after) {
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  if (!may_fuse(*kernels, norm, convolution_bias) || !can_fuse(*kernels, convolved, after.residual))
    return std::nullopt;
  if (norm.num_batches_tracked.defined()) norm.num_batches_tracked += 1;
  const Running running{norm.running_mean, norm.running_var, *norm.options.momentum(), norm.options.eps()};
  return Normed::apply(kernels, convolved, norm.weight, norm.bias, optional(convolution_bias), optional(after.residual),
                       running, after.has_relu);
}

at::Tensor convolved_and_normed(const Kernels& kernels, nn::Conv2dImpl& convolution, nn::BatchNorm2dImpl& norm,
                                const at::Tensor& x, const AfterNorm& after) {
  const auto& options = convolution.options;
  const bool has_bias = convolution.bias.defined();
  if (!kernels || !may_fuse(*kernels, norm, convolution.bias) ||
      !std::holds_alternative<torch::enumtype::kZeros>(options.padding_mode()))
    return plainly_normed(norm, convolution.forward(x), after);
  const auto convolved = nn::functional::detail::conv2d(x, convolution.weight, {}, options.stride(), options.padding(),
                                                        options.dilation(), options.groups());
  if (const auto y = fused_norm(kernels, norm, convolved, convolution.bias, after)) return *y;
  if (!has_bias) return plainly_normed(norm, convolved, after);
  return plainly_normed(norm, convolved + convolution.bias.to(convolved.scalar_type()).view({-1, 1, 1}), after);
}

FusedNorms fused_norms(const nn::Module& network, const KernelSet& kernels) {
  FusedNorms found;
  for (const auto& module : network.modules(/*include_self=*/false)) {
    const auto* const norm = module->as<nn::BatchNorm2d>();
    if (norm == nullptr) continue;
    ++found.all;
    found.fitting += fits(kernels, *norm) ? 1 : 0;
  }
  return found;
}

base::Result<std::string> fuse_norms(Task& task, at::Device device, const StepSettings& settings) {
  if (!settings.channels_last)
    return base::fail(base::Error::Kind::unavailable, "train.channels_last is false",
                      "They need train.channels_last: true.");
  const auto kernels = KernelSet::make(kNormKernels, device, numbers_in(settings.precision));
  if (!kernels) return std::unexpected(kernels.error());
  if (const auto same = verify_norms(*kernels); !same) return std::unexpected(same.error());
  const auto found = fused_norms(task.network(), **kernels);
  if (found.fitting == 0)
    return base::fail(base::Error::Kind::unavailable,
                      "none has a multiple of " + std::to_string((*kernels)->wide()) + " channels",
                      "Other settings under model: give them such a number.");
  task.fuse_norms(*kernels);
  return std::to_string(found.fitting) + " of " + std::to_string(found.all);
}

}  // namespace fullwatt::engine
