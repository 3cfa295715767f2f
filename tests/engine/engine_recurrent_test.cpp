#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "fullwatt/engine/recurrent.hpp"

namespace fullwatt::engine {
namespace {

constexpr std::int64_t kFeatures = 12;

TEST(RecurrentTest, DropoutIsFoundInAnyLayer) {
  using torch::nn::GRUOptions, torch::nn::LSTMOptions;
  EXPECT_FALSE(has_recurrent_dropout(*torch::nn::LSTM(kFeatures, 8)));
  EXPECT_TRUE(has_recurrent_dropout(*torch::nn::LSTM(LSTMOptions(kFeatures, 8).num_layers(2).dropout(0.1))));
  const torch::nn::Sequential nested(torch::nn::Linear(4, kFeatures),
                                     torch::nn::GRU(GRUOptions(kFeatures, 8).num_layers(2).dropout(0.1)));
  EXPECT_TRUE(has_recurrent_dropout(*nested));
  EXPECT_FALSE(has_recurrent_dropout(*torch::nn::Linear(4, 4)));
}

TEST(RecurrentTest, NarrowIsWhatIsMostlyInNarrowLayers) {
  const auto network = [](std::int64_t hidden, std::int64_t outputs) {
    return torch::nn::Sequential(torch::nn::LSTM(kFeatures, hidden), torch::nn::Linear(hidden, outputs));
  };
  EXPECT_TRUE(is_narrow_recurrent(*network(64, 1)));
  EXPECT_FALSE(is_narrow_recurrent(*network(1024, 1))) << "wide";
  EXPECT_FALSE(is_narrow_recurrent(*network(64, 5000))) << "mostly something else";
  EXPECT_FALSE(is_narrow_recurrent(*torch::nn::Linear(4, 4)));
}

}  // namespace
}  // namespace fullwatt::engine
