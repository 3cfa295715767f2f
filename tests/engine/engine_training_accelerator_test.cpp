// TrainingAccelerator where something is not as it should be, and what a device keeps of the samples.

#include <cstring>
#include <filesystem>

#include "tests/support/temp_folder.hpp"
#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include "fullwatt/api/training_accelerator.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/batches.hpp"
#include "fullwatt/engine/training_stream.hpp"

namespace fullwatt::engine {
namespace {

using base::contains;

constexpr std::int64_t kSamples = 16;
constexpr std::int64_t kClasses = 3;

class TrainingAcceleratorTest : public testing::Test {
 protected:
  TrainingAcceleratorTest() {
    config_.hardware.device = "cpu";
    config_.train.batch_size = 4;
    config_.train.num_workers = 1;
    config_.data.limits = {{"labels", kClasses}};
    config_.output.folder = folder_ / "checkpoints";
  }

  void SetUp() override { accelerator_.setup_gpu_training(config_); }

  /// With one label that is to be found.
  static Fields samples(std::int64_t place = 0, std::int64_t label = 0) {
    const auto labels = at::arange(kSamples, at::kLong).remainder(kClasses);
    labels[place] = label;
    return {{"inputs", at::randn({kSamples, 4})}, {"labels", labels}};
  }

  template <class Work>
  static std::string refusal(Work work) {
    try {
      work();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }

  tests::TempFolder folder_;
  api::TrainingConfig config_;
  torch::nn::Linear net_{4, kClasses};
  api::TrainingAccelerator accelerator_{net_.ptr(), [net = net_](const Fields& batch) mutable {
                                          return torch::nn::functional::cross_entropy(net(batch.at("inputs")),
                                                                                      batch.at("labels"));
                                        }};
};

TEST_F(TrainingAcceleratorTest, ALabelBeyondItsLimitIsNamedWithItsSampleAndTheLastCheckpointStays) {
  auto good = accelerator_.optimize_data_loading(samples());
  accelerator_.train(good, {.epochs = 1, .checkpoints = true});
  for (const std::int64_t wrong : {kClasses, std::int64_t{-1}}) {
    auto bad = accelerator_.optimize_data_loading(samples(13, wrong));
    const auto told = refusal([&] { accelerator_.train(bad, {.epochs = 2, .checkpoints = true}); });
    EXPECT_TRUE(contains(told, "sample 13 (the first is 0): the field labels holds " + std::to_string(wrong))) << told;
    EXPECT_TRUE(contains(told, "from 0 to 2: correct the data")) << told;
    EXPECT_TRUE(contains(told, "data.limits")) << told;
    EXPECT_TRUE(std::filesystem::exists(folder_ / "checkpoints/step-000000000004.safetensors"));
    EXPECT_TRUE(accelerator_.resume(good));
    EXPECT_EQ(accelerator_.steps(), 4U);
  }
}

TEST_F(TrainingAcceleratorTest, ABatchOfTheProgramsOwnIsLookedAtToo) {
  EXPECT_EQ(refusal([&] { accelerator_.step(samples()); }), "");
  const auto told = refusal([&] { accelerator_.step(samples(7, 100)); });
  EXPECT_TRUE(contains(told, "sample 7 of the batch (the first is 0): the field labels holds 100")) << told;
  EXPECT_EQ(accelerator_.steps(), 1U);
}

TEST_F(TrainingAcceleratorTest, SamplesThatTheProgramMakesAreLookedAtWhereTheyAreMade) {
  const auto all = samples(9, 3);
  auto loader = accelerator_.optimize_data_loading({.samples = kSamples, .sample = [&](std::int64_t index) {
                                                      return Fields{{"inputs", all.at("inputs")[index]},
                                                                    {"labels", all.at("labels")[index]}};
                                                    }});
  const auto told = refusal([&] { accelerator_.train(loader); });
  EXPECT_TRUE(contains(told, "the source's sample 9: the field labels holds 3")) << told;
}

TEST_F(TrainingAcceleratorTest, WithoutALimitTorchItselfRefuses) {
  config_.data.limits.clear();
  accelerator_.setup_gpu_training(config_);
  EXPECT_TRUE(contains(refusal([&] { accelerator_.step(samples(7, 100)); }), "torch: "));
}

TEST_F(TrainingAcceleratorTest, AParameterThatWasMovedIsNamed) {
  if (!at::hasCUDA()) GTEST_SKIP() << "a module moves between a CPU and a GPU only";
  config_.hardware.device = "cuda";
  accelerator_.setup_gpu_training(config_);
  accelerator_.step(samples());
  net_->to(at::kCPU);
  const auto told = refusal([&] { accelerator_.step(samples()); });
  EXPECT_EQ(told, "weight is on cpu, the training on cuda:0\nLeave the module where setup_gpu_training put it.");
}

TEST_F(TrainingAcceleratorTest, TheCacheIsToldAsItCameOut) {
  const auto told = [&] {
    for (const auto& setting : accelerator_.accelerated_config().settings) {
      if (setting.name == "data.device_cache_gb") return setting.configured + " " + setting.in_force;
    }
    return std::string();
  };
  config_.data.device_cache_gb = std::nullopt;
  accelerator_.setup_gpu_training(config_);
  EXPECT_EQ(told(), "auto auto") << "what it is for is not known yet";
  const auto loader = accelerator_.optimize_data_loading(samples());
  EXPECT_EQ(told(), "auto 0") << "there is no GPU";
  config_.data.device_cache_gb = 1;
  accelerator_.setup_gpu_training(config_);
  const auto cached = accelerator_.optimize_data_loading(samples());
  EXPECT_EQ(told(), "1 1");
}

TEST(CheckLimitsTest, AnyShapeIsLookedThroughAndWhatIsOnADeviceIsNot) {
  const auto named = [](const std::string& field, std::int64_t place) { return field + " " + std::to_string(place); };
  const auto tokens = at::arange(24, at::kInt).reshape({2, 3, 4});
  EXPECT_TRUE(check_limits({{"tokens", tokens}}, {{"tokens", 24}}, named));
  const auto refused = check_limits({{"tokens", tokens}}, {{"tokens", 20}}, named);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "tokens 1: the field tokens holds 20");
  EXPECT_TRUE(check_limits({{"tokens", tokens.to(at::kFloat)}}, {{"tokens", 20}}, named)) << "no whole numbers";
  EXPECT_TRUE(check_limits({{"other", tokens}}, {{"tokens", 20}}, named));
  const auto elsewhere = tokens.to(at::TensorOptions().device(at::kMeta));
  EXPECT_TRUE(check_limits({{"tokens", elsewhere}}, {{"tokens", 20}}, named));
}

/// Work that this stream has for a good while, so that what does not wait for it comes too early.
void keep_busy(at::Device device) {
  const auto large = at::ones({8192, 8192}, device);
  auto product = large;
  for (int i = 0; i < 20; ++i) product = product.matmul(large);
}

TEST(TrainingStreamTest, TheCallersWorkComesBeforeAndAfterTheTrainings) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const at::Device device(at::kCUDA, 0);
  const auto number = at::zeros({1}, device);
  keep_busy(device);
  number.fill_(1);
  at::Tensor seen;
  {
    const TrainingStream stream(device);
    seen = number.clone();
    keep_busy(device);
    number.fill_(2);
  }
  EXPECT_EQ(seen.item<float>(), 1);
  EXPECT_EQ(number.item<float>(), 2);
}

/// Sample i is the number i.
class Numbers final : public DataSet {
 public:
  explicit Numbers(std::int64_t samples) {
    samples_ = samples;
    fields_ = {{"x", Dtype::int64, {}}};
  }
  base::Result<void> fetch(std::size_t, std::span<const std::int64_t> samples, std::byte* to) const override {
    std::memcpy(to, samples.data(), samples.size_bytes());
    return {};
  }
};

TEST(BatchesTest, TheirMemoryOnTheGpuIsTheirsBeforeTheyAreCopied) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  const at::Device device(at::kCUDA, 0);
  at::globalContext().setDeterministicAlgorithms(true, true);  // torch fills new memory, on this stream
  const Numbers numbers(8);
  const TrainingStream stream(device);
  keep_busy(device);
  const auto batches = make_batches(numbers, {.batch = 8, .shuffled = false}, {.device = device});
  at::globalContext().setDeterministicAlgorithms(false, false);
  ASSERT_TRUE(batches);
  const auto batch = (*batches)->next();
  ASSERT_TRUE(batch && *batch);
  EXPECT_TRUE((*batch)->at("x").cpu().equal(at::arange(8, at::kLong)));
}

/// Of one byte each.
class Bytes final : public DataSet {
 public:
  explicit Bytes(std::int64_t samples) {
    samples_ = samples;
    fields_ = {{"x", Dtype::uint8, {}}};
  }
  base::Result<void> fetch(std::size_t, std::span<const std::int64_t>, std::byte*) const override { return {}; }
};

TEST(CacheRoomTest, WhereNothingIsSaidHalfOfTheFreeMemoryIsForSamples) {
  constexpr std::size_t kFree = 10'000'000;
  EXPECT_EQ(cache_room(std::nullopt, kFree), kFree / 2);
  EXPECT_EQ(cache_room(std::nullopt, 0), 0U) << "a CPU";
  EXPECT_EQ(cache_room(0.0, kFree), 0U) << "not wanted";
  EXPECT_EQ(cache_room(2.5, kFree), 2'500'000'000U) << "as wanted, whatever is free";
  const Delivery automatic{.cache_bytes = cache_room(std::nullopt, kFree)};
  EXPECT_TRUE(is_cached(Bytes(kFree / 2), automatic));
  EXPECT_FALSE(is_cached(Bytes(kFree / 2 + 1), automatic)) << "they come batch by batch instead";
  EXPECT_FALSE(is_cached(Bytes(1), {.cache_bytes = cache_room(std::nullopt, 0)}));
}

}  // namespace
}  // namespace fullwatt::engine
