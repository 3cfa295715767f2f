#include "fullwatt/engine/recurrent.hpp"

#include <algorithm>

#include <torch/nn/modules/rnn.h>

namespace fullwatt::engine {
namespace {

/// Of a layer; on an H200 such layers take float32 faster than bfloat16 at batches up to 128, wider ones do not
/// (bench/results/lstm_widths.md).
constexpr std::int64_t kNarrow = 128;

struct Recurrent {
  torch::nn::detail::RNNOptionsBase options;
  std::int64_t parameters;
};

std::int64_t parameters_of(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

template <class Layer>
void add_if(const torch::nn::Module& module, std::vector<Recurrent>& found) {
  if (const auto* const layer = module.as<Layer>()) found.push_back({layer->options_base, parameters_of(module)});
}

std::vector<Recurrent> recurrent_layers(const torch::nn::Module& network) {
  std::vector<Recurrent> found;
  add_if<torch::nn::LSTMImpl>(network, found);
  add_if<torch::nn::GRUImpl>(network, found);
  add_if<torch::nn::RNNImpl>(network, found);
  for (const auto& child : network.children()) std::ranges::copy(recurrent_layers(*child), std::back_inserter(found));
  return found;
}

}  // namespace

bool has_recurrent_dropout(const torch::nn::Module& network) {
  return std::ranges::any_of(recurrent_layers(network), [](const auto& layer) { return layer.options.dropout() > 0; });
}

bool is_narrow_recurrent(const torch::nn::Module& network) {
  std::int64_t narrow = 0;
  for (const auto& layer : recurrent_layers(network))
    narrow += layer.options.hidden_size() < kNarrow ? layer.parameters : 0;
  return narrow > parameters_of(network) / 2;
}

}  // namespace fullwatt::engine
