// On the CPU the kernels' own source is run by threads that take turns; on a GPU they are what a training gets.

#include <cmath>

#include "tests/engine/kernel_sets_on_cpu.hpp"
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>

#include "fullwatt/engine/cross_entropy.hpp"
#include "fullwatt/engine/task.hpp"

namespace fullwatt::engine {
namespace {

struct Outcome {
  at::Tensor loss;
  at::Tensor of_scores;
};

class CrossEntropyTest : public testing::TestWithParam<tests::KernelCase> {
 protected:
  void SetUp() override {
    if (GetParam().device == at::kCUDA && !at::globalContext().hasCUDA()) GTEST_SKIP() << "no GPU";
    at::manual_seed(1);
    if (GetParam().device == at::kCPU) {
      kernels_ = tests::loss_kernels_on_cpu(GetParam().numbers);
      return;
    }
    const auto made = KernelSet::make(kLossKernels, at::Device(at::kCUDA, 0), GetParam().numbers);
    ASSERT_TRUE(made) << made.error().message;
    kernels_ = *made;
  }

  at::TensorOptions of(at::ScalarType type) const { return at::TensorOptions(GetParam().device).dtype(type); }
  at::Tensor scores(std::int64_t rows, std::int64_t classes, double spread = 3) const {
    return (at::randn({rows, classes}, of(at::kFloat)) * spread).to(GetParam().numbers);
  }
  at::Tensor targets(std::int64_t rows, std::int64_t classes) const {
    return at::randint(classes, {rows}, of(at::kLong));
  }

  static Outcome outcome(const c10::intrusive_ptr<KernelSet>& kernels, const at::Tensor& scores,
                         const at::Tensor& targets, double of_loss = 1) {
    const auto x = scores.detach().requires_grad_();
    const auto loss = cross_entropy(kernels, x, targets);
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    (loss * of_loss).backward();
    return {loss.detach(), x.grad()};
  }
  static bool is_fused(const c10::intrusive_ptr<KernelSet>& kernels, const at::Tensor& scores,
                       const at::Tensor& targets) {
    const auto loss = cross_entropy(kernels, scores.detach().requires_grad_(), targets);
    return loss.grad_fn()->name().find("CrossEntropy") != std::string::npos;
  }

  c10::intrusive_ptr<KernelSet> kernels_;
};

/// By torch in float64, from the same numbers.
Outcome expected(const at::Tensor& scores, const at::Tensor& targets, double of_loss) {
  const auto x = scores.detach().to(at::kDouble).requires_grad_();
  const auto loss = at::cross_entropy_loss(x, targets);
  (loss * of_loss).backward();
  return {loss.detach(), x.grad()};
}

void expect_same(const Outcome& found, const at::Tensor& scores, const at::Tensor& targets, double of_loss = 1) {
  constexpr double kFew = 16 * 0x1p-24;  // roundings of a float
  const auto wanted = expected(scores, targets, of_loss);
  const double largest = scores.to(at::kDouble).clamp(-100, 100).abs().max().item<double>();
  EXPECT_NEAR(found.loss.item<double>(), wanted.loss.item<double>(), kFew * (largest + wanted.loss.item<double>()));
  const double number = tests::rounding_of(scores.scalar_type());
  // A probability is off by what its exponent is, and rounded to the type of the scores; the smallest are not held.
  const double most = std::abs(of_loss) / static_cast<double>(scores.size(0));
  const auto off = (found.of_scores.to(at::kDouble) - wanted.of_scores).abs();
  const auto allowed = wanted.of_scores.abs() * (number + kFew * largest) + most * kFew +
                       (scores.scalar_type() == at::kHalf ? 0x1p-25 : 0);
  EXPECT_TRUE(off.le(allowed).all().item<bool>()) << (off - allowed).max();
}

TEST_P(CrossEntropyTest, EverythingIsAsInTorch) {
  for (const auto& [rows, classes] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 8}, {7, 64}, {3, 1000}, {2, 4096}, {2, 8200}}) {
    SCOPED_TRACE(testing::Message() << rows << " rows of " << classes);
    const auto x = scores(rows, classes);
    const auto y = targets(rows, classes);
    ASSERT_TRUE(is_fused(kernels_, x, y));
    expect_same(outcome(kernels_, x, y), x, y);
    expect_same(outcome(kernels_, x, y, 1024), x, y, 1024);  // as a gradient scaler has it
  }
}

TEST_P(CrossEntropyTest, LargeScoresAreNoTrouble) {
  auto x = scores(4, 64, 20);
  x.add_(1000);
  const auto y = targets(4, 64);
  const auto found = outcome(kernels_, x, y);
  const auto wanted = expected(x, y, 1);
  EXPECT_NEAR(found.loss.item<double>(), wanted.loss.item<double>(), 1e-3);
  EXPECT_TRUE(at::allclose(found.of_scores.to(at::kDouble), wanted.of_scores, 0.01, 1e-3));
}

TEST_P(CrossEntropyTest, ScoresThatAreNeverLikelyChangeNothing) {
  const auto x = scores(5, 128);
  const auto y = targets(5, 128);
  auto padded = at::constant_pad_nd(x, {0, 8 * 600}, -INFINITY);  // whole threads have nothing else
  const auto plain = outcome(kernels_, x, y);
  const auto found = outcome(kernels_, padded, y);
  EXPECT_NEAR(found.loss.item<double>(), plain.loss.item<double>(), 1e-5);
  EXPECT_TRUE(at::allclose(found.of_scores.slice(1, 0, 128), plain.of_scores, 1e-2, 1e-5));
  EXPECT_EQ(found.of_scores.slice(1, 128).abs().max().item<double>(), 0);
}

TEST_P(CrossEntropyTest, ItIsTheSameEachTime) {
  const auto x = scores(6, 4096);
  const auto y = targets(6, 4096);
  const auto first = outcome(kernels_, x, y);
  const auto second = outcome(kernels_, x, y);
  EXPECT_TRUE(first.loss.equal(second.loss));
  EXPECT_TRUE(first.of_scores.equal(second.of_scores));
}

TEST_P(CrossEntropyTest, WhatIsNoNumberIsPassedOn) {
  auto x = scores(2, 64);
  x[1][5] = NAN;
  EXPECT_TRUE(std::isnan(outcome(kernels_, x, targets(2, 64)).loss.item<double>()));
  x[1][5] = INFINITY;
  EXPECT_TRUE(std::isnan(outcome(kernels_, x, targets(2, 64)).loss.item<double>()));
}

TEST_P(CrossEntropyTest, ATargetThatThereIsNotIsNoNumber) {
  const auto x = scores(3, 64);
  for (const std::int64_t wrong : {-1, 64, 1'000'000'000}) {
    auto y = targets(3, 64);
    y[1] = wrong;
    EXPECT_TRUE(std::isnan(outcome(kernels_, x, y).loss.item<double>())) << wrong;
  }
}

TEST_P(CrossEntropyTest, WhatDoesNotFitIsLeftToTorchInFloat32) {
  const auto y = targets(4, 60);
  const auto odd = scores(4, 61);
  EXPECT_FALSE(is_fused(kernels_, odd, y));
  expect_same(outcome(kernels_, odd, y), odd, y);
  const auto turned = scores(64, 4).t();
  EXPECT_FALSE(is_fused(kernels_, turned, y));
  const auto moved = scores(4, 65).flatten().slice(0, 1, 257).view({4, 64});
  EXPECT_FALSE(is_fused(kernels_, moved, y));
  EXPECT_FALSE(is_fused(kernels_, scores(4, 64).to(at::kDouble), y));
  EXPECT_FALSE(is_fused({}, scores(4, 64), y));
  EXPECT_TRUE(is_fused(kernels_, scores(4, 64), y));
}

TEST_P(CrossEntropyTest, TheyAreVerifiedBeforeTheyAreUsed) {
  const auto same = verify_loss(kernels_);
  EXPECT_TRUE(same) << same.error().message;
}

TEST(LossKernelsTest, WrongResultsAreNoticed) {
  const auto same = verify_loss(c10::make_intrusive<tests::IdleKernels>());
  ASSERT_FALSE(same);
  EXPECT_NE(same.error().message.find("are not torch's"), std::string::npos) << same.error().message;
}

TEST(LossKernelsTest, GptTakesThem) {
  ModelConfig config;
  config.name = "gpt2";
  config.vocabulary = 64;
  config.context = 8;
  config.heads = 2;
  config.layers = 1;
  config.embedding = 16;
  const auto task = make_task(config);
  ASSERT_TRUE(task) << task.error().message;
  const Fields batch{{"tokens", at::randint(64, {3, 9}, at::kLong)}};
  const auto plain = (*task)->loss(batch);
  EXPECT_TRUE((*task)->fuse_loss({}));  // asks whether it can
  EXPECT_TRUE((*task)->fuse_loss(tests::loss_kernels_on_cpu(at::kFloat)));
  const auto fused = (*task)->loss(batch);
  EXPECT_NE(fused.grad_fn()->name().find("CrossEntropy"), std::string::npos);
  EXPECT_NEAR(fused.item<double>(), plain.item<double>(), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(On, CrossEntropyTest, testing::ValuesIn(tests::kernel_cases()),
                         [](const auto& given) { return tests::name_of(given.param); });

}  // namespace
}  // namespace fullwatt::engine
