#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "fullwatt/engine/recomputed.hpp"

namespace fullwatt::engine {
namespace {

constexpr std::int64_t kWidth = 6;

/// Has parameters, statistics and random numbers, and counts how often it is computed.
struct Layer : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    ++computations;
    is_shortened.push_back(at::autocast::is_autocast_enabled(at::kCPU));
    return at::dropout(statistics->forward(product->forward(x).to(at::kFloat)).relu_(), 0.5, is_training());
  }

  torch::nn::Linear product = register_module("product", torch::nn::Linear(kWidth, kWidth));
  torch::nn::BatchNorm1d statistics = register_module("statistics", torch::nn::BatchNorm1d(kWidth));
  int computations = 0;
  std::vector<bool> is_shortened;
};

struct Outcome {
  std::vector<at::Tensor> tensors;  ///< the output, gradients and buffers
  at::Tensor random;                ///< the generator's state after all
  int computations = 0;
};

Outcome computed(bool again, bool input_needs_gradient, bool in_bfloat16) {
  at::manual_seed(1);
  Layer below;
  Layer above;
  auto input = at::randn({8, kWidth}).requires_grad_(input_needs_gradient);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, in_bfloat16);
  const auto between = again ? recomputed(below, input, true) : below.forward(input);
  const auto output = again ? recomputed(above, between, true) : above.forward(between);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  output.square().sum().backward();
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  Outcome outcome{{output.detach()}, at::detail::getDefaultCPUGenerator().get_state()};
  if (input_needs_gradient) outcome.tensors.push_back(input.grad());
  for (const auto* layer : {&below, &above}) {
    for (const auto& parameter : layer->parameters()) outcome.tensors.push_back(parameter.grad());
    for (const auto& buffer : layer->buffers()) outcome.tensors.push_back(buffer);
    outcome.computations += layer->computations;
    for (const bool is_shortened : layer->is_shortened) EXPECT_EQ(is_shortened, in_bfloat16);
  }
  return outcome;
}

TEST(EngineRecomputedTest, NothingChangesButThatAllIsComputedTwice) {
  for (const bool input_needs_gradient : {false, true}) {
    for (const bool in_bfloat16 : {false, true}) {
      const auto plain = computed(false, input_needs_gradient, in_bfloat16);
      const auto again = computed(true, input_needs_gradient, in_bfloat16);
      EXPECT_EQ(plain.computations, 2);
      EXPECT_EQ(again.computations, 4);
      EXPECT_TRUE(plain.random.equal(again.random));
      ASSERT_EQ(plain.tensors.size(), again.tensors.size());
      for (std::size_t i = 0; i < plain.tensors.size(); ++i) EXPECT_TRUE(plain.tensors[i].equal(again.tensors[i])) << i;
    }
  }
}

TEST(EngineRecomputedTest, NothingIsKeptOfWhatIsInside) {
  Layer layer;
  c10::weak_intrusive_ptr<c10::TensorImpl> inside(at::empty({}).getIntrusivePtr());
  const auto output = recomputed(
      layer,
      [&](const at::Tensor& x) {
        const auto product = layer.product->forward(x);
        inside = c10::weak_intrusive_ptr<c10::TensorImpl>(product.getIntrusivePtr());
        return product.sigmoid();
      },
      at::ones({2, kWidth}), false);
  EXPECT_TRUE(output.requires_grad());
  EXPECT_TRUE(inside.expired());
}

TEST(EngineRecomputedTest, WithoutGradientsItIsComputedOnce) {
  Layer layer;
  const at::NoGradGuard without_gradients;
  EXPECT_FALSE(recomputed(layer, at::ones({4, kWidth}), true).requires_grad());
  EXPECT_EQ(layer.computations, 1);
}

TEST(EngineRecomputedTest, AnInputThatWasChangedSinceIsNotTaken) {
  Layer layer;
  const auto input = at::ones({4, kWidth});
  const auto output = recomputed(layer, input, true);
  input.add_(1);
  EXPECT_THROW(output.sum().backward(), c10::Error);
}

}  // namespace
}  // namespace fullwatt::engine
