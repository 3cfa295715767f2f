#pragma once

#include <torch/nn/module.h>

/// Networks with LSTM, GRU or RNN layers, which cuDNN computes as a whole.
namespace fullwatt::engine {

bool has_recurrent_dropout(const torch::nn::Module& network);

/// Whether most of its parameters are in recurrent layers so narrow that bfloat16 makes them slower: it takes longer to
/// convert them than their products are shorter (bench/results/train.md: hidden 64 is 1.6 times as fast in float32).
bool is_narrow_recurrent(const torch::nn::Module& network);

}  // namespace fullwatt::engine
