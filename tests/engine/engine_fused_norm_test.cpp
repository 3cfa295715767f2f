// On the CPU the kernels' own source is run by threads that take turns; on a GPU they are what a training gets.

#include <chrono>
#include <cmath>
#include <iostream>

#include "tests/engine/kernel_sets_on_cpu.hpp"
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include "fullwatt/engine/fused_norm.hpp"
#include "fullwatt/engine/recomputed.hpp"
#include "fullwatt/engine/task.hpp"

namespace fullwatt::engine {
namespace {

namespace nn = torch::nn;
using Kernels = c10::intrusive_ptr<KernelSet>;

struct Shape {
  std::int64_t pictures;
  std::int64_t channels;
  std::int64_t height;
  std::int64_t width;
};

/// A norm, what goes in, and the gradient that comes back.
struct Problem {
  nn::BatchNorm2d norm{nullptr};
  at::Tensor x;
  at::Tensor convolution_bias;
  at::Tensor residual;
  at::Tensor of_y;
};

struct Outcome {
  at::Tensor y;
  at::Tensor of_x;
  at::Tensor of_residual;
  at::Tensor of_weight;
  at::Tensor of_bias;
  at::Tensor of_convolution_bias;
  at::Tensor running_mean;
  at::Tensor running_variance;

  std::vector<at::Tensor> all() const {
    return {y, of_x, of_residual, of_weight, of_bias, of_convolution_bias, running_mean, running_variance};
  }
};

at::Tensor laid_out(const at::Tensor& tensor) {
  return tensor.contiguous(at::MemoryFormat::ChannelsLast);
}

class FusedNormTest : public testing::TestWithParam<tests::KernelCase> {
 protected:
  void SetUp() override {
    if (GetParam().device == at::kCUDA && !at::globalContext().hasCUDA()) GTEST_SKIP() << "no GPU";
    at::globalContext().setAllowTF32CuDNN(false);
    at::manual_seed(1);
    if (GetParam().device == at::kCPU) {
      kernels_ = tests::norm_kernels_on_cpu(GetParam().numbers);
      return;
    }
    const auto made = KernelSet::make(kNormKernels, at::Device(at::kCUDA, 0), GetParam().numbers);
    ASSERT_TRUE(made) << made.error().message;
    kernels_ = *made;
  }

  at::TensorOptions floats() const { return at::TensorOptions(GetParam().device).dtype(at::kFloat); }

  /// A mean of `mean` and a deviation of about 1 in each channel, and much beside it in the weights.
  Problem problem(const Shape& shape, bool adds, double mean = 0.5) const {
    const std::vector<std::int64_t> sizes{shape.pictures, shape.channels, shape.height, shape.width};
    const auto made = [&] { return laid_out(at::randn(sizes, floats()).to(GetParam().numbers)); };
    Problem made_up{nn::BatchNorm2d(shape.channels),
                    laid_out((at::randn(sizes, floats()) + mean).to(GetParam().numbers)),
                    at::randn({shape.channels}, floats()), adds ? made() : at::Tensor(), made()};
    made_up.norm->to(GetParam().device);
    const at::NoGradGuard without_gradients;
    made_up.norm->weight.uniform_(0.5, 1.5);
    made_up.norm->bias.uniform_(-0.5, 0.5);
    made_up.norm->running_mean.uniform_(-1, 1);
    return made_up;
  }

  static nn::BatchNorm2d copy_of(const nn::BatchNorm2d& norm) {
    return nn::BatchNorm2d(std::dynamic_pointer_cast<nn::BatchNorm2dImpl>(norm->clone()));
  }

  std::optional<Outcome> fused(const Problem& given, bool has_relu) const {
    auto norm = copy_of(given.norm);
    const auto x = given.x.detach().requires_grad_();
    const auto bias = given.convolution_bias.detach().requires_grad_();
    const auto residual = given.residual.defined() ? given.residual.detach().requires_grad_() : at::Tensor();
    const auto y = fused_norm(kernels_, *norm, x, bias, {.residual = residual, .has_relu = has_relu});
    if (!y) return std::nullopt;
    y->backward(given.of_y);
    return Outcome{y->detach(),         x.grad(),          residual.defined() ? residual.grad() : at::Tensor(),
                   norm->weight.grad(), norm->bias.grad(), bias.grad(),
                   norm->running_mean,  norm->running_var};
  }

  Kernels kernels_;
};

/// By torch in float64, from the same numbers; points are cut off where they were in `y`.
Outcome expected(const Problem& given, bool has_relu, const at::Tensor& cut) {
  const auto doubled = [](const at::Tensor& tensor) { return tensor.detach().to(at::kDouble); };
  const auto x = doubled(given.x).requires_grad_();
  const auto weight = doubled(given.norm->weight).requires_grad_();
  const auto bias = doubled(given.norm->bias).requires_grad_();
  auto mean = doubled(given.norm->running_mean);
  auto variance = doubled(given.norm->running_var);
  const auto with_bias = x + doubled(given.convolution_bias).view({1, -1, 1, 1});
  auto y = at::batch_norm(with_bias, weight, bias, mean, variance, true, *given.norm->options.momentum(),
                          given.norm->options.eps(), false);
  at::Tensor residual;
  if (given.residual.defined()) y = y + (residual = doubled(given.residual).requires_grad_());
  if (has_relu) y = y * cut;
  y.backward(doubled(given.of_y));
  return {y.detach(),    x.grad(),    residual.defined() ? residual.grad() : at::Tensor(),
          weight.grad(), bias.grad(), at::Tensor(),
          mean,          variance};
}

double largest(const at::Tensor& tensor) {
  return tensor.abs().max().item<double>();
}

void expect_near(const at::Tensor& found, const at::Tensor& wanted, double relative, double absolute,
                 const char* what) {
  const auto excess = (found.to(at::kDouble) - wanted).abs() - wanted.abs() * relative - absolute;
  EXPECT_LE(excess.max().item<double>(), 0) << what << ": largest " << largest(wanted) << ", allowed " << absolute;
}

/// A float's rounding of the largest term, some times over: sums are added in a tree, and a few products follow.
void expect_same(const Outcome& found, const Problem& given, bool has_relu) {
  constexpr double kFloat = 16 * 0x1p-24;
  const double number = tests::rounding_of(given.x.scalar_type());
  const auto cut = found.y.to(at::kDouble).gt(0).to(at::kDouble);
  const auto wanted = expected(given, has_relu, cut);
  const double deviation = std::sqrt(given.x.to(at::kDouble).var({0, 2, 3}).min().item<double>() + 1e-5);
  const double spread = largest(given.x) / deviation * largest(given.norm->weight);
  const double rows = static_cast<double>(given.x.numel() / given.x.size(1));
  expect_near(found.y, wanted.y, number, kFloat * (spread + largest(wanted.y)), "output");
  if (has_relu) {
    const auto cut_off = expected(given, false, cut).y.mul(1 - cut);
    EXPECT_TRUE(cut_off.le(kFloat * spread).all().item<bool>());
  }
  expect_near(found.of_x, wanted.of_x, number, kFloat * spread * largest(given.of_y) / deviation, "gradient of x");
  if (given.residual.defined()) {
    EXPECT_TRUE(found.of_residual.to(at::kDouble).equal(wanted.of_residual));
  }
  const double terms = std::sqrt(rows) * largest(given.of_y) * 4;
  expect_near(found.of_weight, wanted.of_weight, kFloat, kFloat * terms * spread, "gradient of the weight");
  expect_near(found.of_bias, wanted.of_bias, kFloat, kFloat * terms, "gradient of the bias");
  EXPECT_EQ(largest(found.of_convolution_bias), 0);
  expect_near(found.running_mean, wanted.running_mean, kFloat, kFloat, "running mean");
  expect_near(found.running_variance, wanted.running_variance, kFloat, kFloat * spread, "running variance");
}

TEST_P(FusedNormTest, EverythingIsAsInTorch) {
  const std::vector<Shape> shapes{{4, 24, 9, 7},  {3, 48, 5, 6},   {2, 96, 6, 5}, {2, 192, 3, 4}, {2, 64, 7, 7},
                                  {2, 256, 4, 3}, {2, 2048, 3, 2}, {1, 8, 1, 2},  {2, 8, 40, 50}, {2, 1032, 3, 3}};
  for (const auto& shape : shapes) {
    for (const bool adds : {false, true}) {
      for (const bool has_relu : {false, true}) {
        SCOPED_TRACE(testing::Message() << shape.channels << " channels" << (adds ? ", added" : "")
                                        << (has_relu ? ", ReLU" : ""));
        const auto given = problem(shape, adds);
        const auto found = fused(given, has_relu);
        ASSERT_TRUE(found);
        expect_same(*found, given, has_relu);
      }
    }
  }
}

TEST_P(FusedNormTest, ALargeMeanLosesNoDeviation) {
  const auto given = problem({4, 24, 9, 7}, false, GetParam().numbers == at::kBFloat16 ? 8 : 200);
  const auto found = fused(given, true);
  ASSERT_TRUE(found);
  expect_same(*found, given, true);
}

TEST_P(FusedNormTest, ItIsTheSameEachTime) {
  const auto given = problem({8, 48, 40, 40}, true);
  const auto first = fused(given, true);
  const auto second = fused(given, true);
  ASSERT_TRUE(first && second);
  for (std::size_t i = 0; i < first->all().size(); ++i) EXPECT_TRUE(first->all()[i].equal(second->all()[i])) << i;
}

TEST_P(FusedNormTest, WhatIsNoNumberIsPassedOn) {
  auto given = problem({2, 16, 4, 4}, false);
  given.norm->bias.data().fill_(9);  // no point is cut off
  given.of_y.index_put_({at::tensor(0), at::tensor(3), at::tensor(1), at::tensor(1)}, INFINITY);
  given.of_y.index_put_({at::tensor(0), at::tensor(5), at::tensor(1), at::tensor(1)}, NAN);
  const auto found = fused(given, true);
  ASSERT_TRUE(found);
  for (std::int64_t channel = 0; channel < 16; ++channel) {
    const bool is_whole = channel != 3 && channel != 5;
    EXPECT_EQ(found->of_x.select(1, channel).isfinite().all().item<bool>(), is_whole) << channel;
    EXPECT_EQ(std::isfinite(found->of_weight[channel].item<double>()), is_whole) << channel;
  }
  given.x.index_put_({at::tensor(0), at::tensor(2), at::tensor(1), at::tensor(1)}, NAN);
  const auto broken = fused(given, true);
  EXPECT_TRUE(broken->y.select(1, 2).isnan().all().item<bool>());
  EXPECT_TRUE(std::isnan(broken->running_mean[2].item<double>()));
}

TEST_P(FusedNormTest, WhatDoesNotFitIsLeftToTorch) {
  const auto is_fused = [&](const Problem& given) { return fused(given, true).has_value(); };
  EXPECT_FALSE(is_fused(problem({2, GetParam().numbers == at::kFloat ? 6 : 20, 4, 4}, false)));
  EXPECT_FALSE(is_fused(problem({1, 24, 1, 1}, false)));
  auto given = problem({2, 24, 4, 4}, true);
  EXPECT_TRUE(is_fused(given));
  given.residual = given.residual.contiguous();
  EXPECT_FALSE(is_fused(given));
  given.residual = given.residual.to(at::kDouble);
  EXPECT_FALSE(is_fused(given));
  given = problem({2, 24, 4, 4}, false);
  given.x = given.x.contiguous();
  EXPECT_FALSE(is_fused(given));
  given = problem({2, 24, 4, 4}, false);
  given.norm->eval();
  EXPECT_FALSE(is_fused(given));
  given.norm->train();
  given.norm->options.momentum(std::nullopt);
  EXPECT_FALSE(is_fused(given));
}

TEST_P(FusedNormTest, GradientsThatLieOtherwiseAreTaken) {
  auto given = problem({2, 24, 4, 4}, true);
  const auto plain = fused(given, true);
  given.of_y = given.of_y.contiguous();
  const auto other = fused(given, true);
  ASSERT_TRUE(plain && other);
  for (std::size_t i = 0; i < plain->all().size(); ++i) EXPECT_TRUE(plain->all()[i].equal(other->all()[i])) << i;
}

/// A residual block, as the models have them.
struct BlockOfTwo : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const auto inside = convolved_and_normed(kernels, *first, *first_norm, x);
    return convolved_and_normed(kernels, *second, *second_norm, inside, {.residual = x});
  }

  nn::Conv2d first = register_module("first", nn::Conv2d(nn::Conv2dOptions(16, 16, 3).padding(1)));
  nn::BatchNorm2d first_norm = register_module("first_norm", nn::BatchNorm2d(16));
  nn::Conv2d second = register_module("second", nn::Conv2d(nn::Conv2dOptions(16, 16, 3).padding(1)));
  nn::BatchNorm2d second_norm = register_module("second_norm", nn::BatchNorm2d(16));
  Kernels kernels;
};

/// The output, all gradients and buffers of one pass.
std::vector<at::Tensor> pass(at::Device device, const Kernels& kernels, bool is_recomputed) {
  at::manual_seed(3);
  BlockOfTwo block;
  block.to(device);
  block.kernels = kernels;
  const auto x = laid_out(at::randn({4, 16, 6, 5}).to(device)).requires_grad_();
  const auto y = is_recomputed ? recomputed(block, x) : block.forward(x);
  EXPECT_EQ(!is_recomputed && y.grad_fn()->name().find("Normed") != std::string::npos, kernels && !is_recomputed);
  (y * laid_out(at::randn({4, 16, 6, 5}).to(device))).sum().backward();
  std::vector<at::Tensor> found{y.detach(), x.grad()};
  for (const auto& parameter : block.parameters()) found.push_back(parameter.grad());
  for (const auto& buffer : block.buffers()) found.push_back(buffer);
  return found;
}

TEST_P(FusedNormTest, ABlockIsAsInTorchAndComputedAgainTheSame) {
  if (GetParam().numbers != at::kFloat) GTEST_SKIP() << "convolutions in other types are not exact enough to compare";
  const auto device = kernels_->device();
  at::globalContext().setDeterministicCuDNN(true);
  const auto plain = pass(device, {}, false);
  const auto fused = pass(device, kernels_, false);
  const auto again = pass(device, kernels_, true);
  ASSERT_EQ(plain.size(), fused.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(at::allclose(fused[i], plain[i], 1e-4, 1e-4)) << i << ": " << (fused[i] - plain[i]).abs().max();
    EXPECT_TRUE(fused[i].equal(again[i])) << i;
  }
}

TEST_P(FusedNormTest, TheyAreVerifiedBeforeTheyAreUsed) {
  const auto same = verify_norms(kernels_);
  EXPECT_TRUE(same) << same.error().message;
}

TEST(NormKernelsTest, WrongResultsAreNoticed) {
  const auto same = verify_norms(c10::make_intrusive<tests::IdleKernels>());
  ASSERT_FALSE(same);
  EXPECT_NE(same.error().message.find("are not torch's"), std::string::npos) << same.error().message;
}

TEST(NormKernelsTest, TheModelsTakeThem) {
  const auto kernels = c10::make_intrusive<tests::IdleKernels>();
  for (const auto* name : {"keypoint", "resnet50"}) {
    ModelConfig config;
    config.name = name;
    const auto task = make_task(config);
    ASSERT_TRUE(task) << task.error().message;
    EXPECT_TRUE((*task)->fuse_norms({}));  // asks whether it can
    EXPECT_TRUE((*task)->fuse_norms(kernels));
    const auto found = fused_norms((*task)->network(), *kernels);
    EXPECT_GT(found.all, 10) << name;
    EXPECT_EQ(found.fitting, found.all) << name;
  }
}

/// Forward and backward, a few times, in milliseconds each.
template <class Pass>
double milliseconds(const at::Tensor& of_y, const Pass& pass_forward) {
  constexpr int kTimes = 20;
  const auto all = [&](int times) {
    for (int i = 0; i < times; ++i) pass_forward().backward(of_y);
    static_cast<void>(at::zeros({}, of_y.options()).item());  // waits for the device
  };
  all(3);
  const auto begun = std::chrono::steady_clock::now();
  all(kTimes);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count() / kTimes;
}

/// Of the keypoint network's largest norms, with a batch of 256. --gtest_also_run_disabled_tests runs it.
TEST_P(FusedNormTest, DISABLED_HowLongItTakes) {
  if (GetParam().device != at::kCUDA) GTEST_SKIP() << "only a GPU is timed";
  for (const auto& shape :
       std::vector<Shape>{{256, 24, 80, 160}, {256, 24, 40, 80}, {256, 48, 20, 40}, {256, 192, 5, 10}}) {
    for (const bool adds : {false, true}) {
      const auto given = problem(shape, adds);
      const auto x = given.x.detach().requires_grad_();
      const auto residual = adds ? given.residual.detach().requires_grad_() : at::Tensor();
      auto norm = given.norm;
      const double fused_time = milliseconds(
          given.of_y, [&] { return *fused_norm(kernels_, *norm, x, given.convolution_bias, {.residual = residual}); });
      const double plain_time = milliseconds(given.of_y, [&] {
        auto y = norm->forward(x);
        if (adds) y.add_(residual);
        return y.relu_();
      });
      std::cout << shape.channels << " channels of " << shape.height << "×" << shape.width << (adds ? ", added" : "")
                << ": fused " << fused_time << " ms, torch " << plain_time << " ms\n";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(On, FusedNormTest, testing::ValuesIn(tests::kernel_cases()),
                         [](const auto& given) { return tests::name_of(given.param); });

}  // namespace
}  // namespace fullwatt::engine
