// A model of one's own for `fullwatt train`, in one file: convolutions over time instead of the LSTM of examples/lstm.

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "fullwatt/engine/own_model.hpp"

namespace {

using fullwatt::engine::Fields;
using fullwatt::engine::ModelConfig;

/// A setting of this model, under model.settings.
std::int64_t setting(const ModelConfig& config, const std::string& name, std::int64_t otherwise) {
  const auto found = config.settings.find(name);
  return found != config.settings.end() ? std::stoll(found->second) : otherwise;
}

struct Network : torch::nn::Module {
  Network(std::int64_t features, std::int64_t hidden, std::int64_t kernel)
      : layers(register_module(
            "layers", torch::nn::Sequential(
                          torch::nn::Conv1d(torch::nn::Conv1dOptions(features, hidden, kernel).padding(kernel / 2)),
                          torch::nn::ReLU(),
                          torch::nn::Conv1d(torch::nn::Conv1dOptions(hidden, hidden, kernel).padding(kernel / 2)),
                          torch::nn::ReLU()))),
        head(register_module("head", torch::nn::Linear(hidden, features))) {}

  at::Tensor forward(const at::Tensor& windows) {
    return head->forward(layers->forward(windows.transpose(1, 2)).select(2, -1));
  }

  torch::nn::Sequential layers;
  torch::nn::Linear head;
};

class Forecaster final : public fullwatt::engine::Task {
 public:
  explicit Forecaster(const ModelConfig& config)
      : network_(config.features, config.hidden, setting(config, "kernel", 3)) {}

  torch::nn::Module& network() override { return network_; }
  std::vector<std::string> fields() const override { return {"windows", "targets"}; }
  at::Tensor loss(const Fields& batch) override {
    return torch::nn::functional::mse_loss(network_.forward(batch.at("windows")), batch.at("targets"));
  }

 private:
  Network network_;
};

}  // namespace

FULLWATT_MODEL(Forecaster)
