// A forecaster over windows of a series: the next values from the last state of an LSTM.

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "fullwatt/engine/task.hpp"

namespace fullwatt::engine {
namespace {

struct Forecaster : torch::nn::Module {
  explicit Forecaster(const ModelConfig& config)
      : lstm(register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(config.features, config.hidden)
                                                         .num_layers(config.layers)
                                                         .batch_first(true)
                                                         .dropout(config.layers > 1 ? config.dropout : 0)))),
        head(register_module("head", torch::nn::Linear(config.hidden, config.features))) {}

  at::Tensor forward(const at::Tensor& windows) {
    const auto outputs = std::get<0>(lstm->forward(windows));
    return head->forward(outputs.select(1, -1));
  }

  torch::nn::LSTM lstm;
  torch::nn::Linear head;
};

class LstmTask final : public Task {
 public:
  explicit LstmTask(const ModelConfig& config) : network_(config) {}

  torch::nn::Module& network() override { return network_; }
  std::vector<std::string> fields() const override { return {"windows", "targets"}; }
  at::Tensor loss(const Fields& batch) override {
    return torch::nn::functional::mse_loss(network_.forward(batch.at("windows")), batch.at("targets"));
  }

 private:
  Forecaster network_;
};

}  // namespace

std::unique_ptr<Task> make_lstm(const ModelConfig& config) {
  return std::make_unique<LstmTask>(config);
}

}  // namespace fullwatt::engine
