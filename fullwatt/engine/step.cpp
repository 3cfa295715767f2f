#include "fullwatt/engine/step.hpp"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace fullwatt::engine {
namespace {

/// Products and convolutions in a shorter type while it lives.
class Autocast {
 public:
  Autocast(at::DeviceType device, Precision precision) : device_(device), is_on_(precision != Precision::fp32) {
    if (!is_on_) return;
    at::autocast::set_autocast_dtype(device_, precision == Precision::fp16 ? at::kHalf : at::kBFloat16);
    at::autocast::set_autocast_enabled(device_, true);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() {
    if (!is_on_) return;
    at::autocast::set_autocast_enabled(device_, false);
    at::autocast::clear_cache();
  }

 private:
  at::DeviceType device_;
  bool is_on_;
};

Fields cut(const Fields& batch, std::int64_t first, std::int64_t count) {
  Fields piece;
  for (const auto& [name, tensor] : batch) piece.emplace(name, tensor.narrow(0, first, count));
  return piece;
}

void lay_channels_last(torch::nn::Module& network) {
  for (auto& parameter : network.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  }
}

}  // namespace

std::int64_t samples_of(const Fields& batch) {
  return batch.empty() ? 0 : batch.begin()->second.size(0);
}

Named weights_of(const torch::nn::Module& network) {
  Named found;
  for (const auto& item : network.named_parameters()) found.emplace_back(item.key(), item.value());
  for (const auto& item : network.named_buffers()) found.emplace_back(item.key(), item.value());
  return found;
}

Step::Step(torch::nn::Module& network, Loss loss, const OptimizerConfig& config, const StepSettings& settings,
           at::Device device)
    : network_(network),
      loss_(std::move(loss)),
      settings_(settings),
      device_(device),
      augmentation_(settings.augment, settings.normalisation, device) {
  network_.train();
  if (settings_.channels_last) lay_channels_last(network_);
  optimizer_ = make_optimizer(network_.parameters(), config);
  if (settings_.precision == Precision::fp16) scaler_ = std::make_unique<Scaler>(device);
  step_loss_ = at::zeros({}, at::TensorOptions().device(device).dtype(at::kFloat));
  losses_ = at::zeros_like(step_loss_);
  steps_ = at::zeros_like(step_loss_);
}

Fields Step::prepared(const Fields& batch) const {
  constexpr double kBrightest = 255;
  Fields ready;
  for (const auto& [name, given] : batch) {
    const bool is_picture = name == "images";
    const bool is_bytes = given.scalar_type() == at::kByte;
    auto tensor = is_picture ? augmentation_.moved(given) : given;
    if (is_bytes) tensor = tensor.to(at::kFloat).div_(kBrightest);
    if (tensor.is_floating_point()) tensor = tensor.to(at::kFloat);
    if (is_picture) tensor = augmentation_.coloured(tensor, is_bytes);
    if (settings_.channels_last && tensor.dim() == 4) tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
    ready.emplace(name, tensor);
  }
  return ready;
}

void Step::add(const Fields& batch, double weight, bool is_last) {
  const auto samples = samples_of(batch);
  const auto each = std::max<std::int64_t>(1, (samples + pieces_ - 1) / pieces_);
  for (std::int64_t first = 0; first < samples; first += each) {
    const auto count = std::min(each, samples - first);
    if (sum_ && is_last && first + count == samples) sum_->expect();
    add_piece(count == samples ? batch : cut(batch, first, count),
              weight * static_cast<double>(count) / static_cast<double>(samples));
  }
}

void Step::add_piece(const Fields& batch, double weight) {
  at::Tensor loss;
  {
    const Autocast autocast(device_.type(), settings_.precision);
    loss = loss_(prepared(batch));
  }
  const auto weighed = weight == 1 ? loss : loss * weight;
  const auto begun = RunRecording::now_ns();
  (scaler_ ? scaler_->scaled(weighed) : weighed).backward();
  if (recording_ != nullptr) recording_->phase(RunRecording::Phase::backward, begun);
  step_loss_ += weighed.detach();
}

base::Result<void> Step::apply() {
  if (sum_) {
    if (const auto done = sum_->wait(); !done) return done;
  }
  const auto gradients = optimizer_->gradients();
  std::optional<at::Tensor> overflowed;
  if (scaler_ && !gradients.empty()) overflowed = scaler_->unscale(gradients);
  if (settings_.clip > 0) clip_gradients(gradients, settings_.clip);
  optimizer_->step(overflowed);
  if (overflowed) scaler_->update();
  optimizer_->forget_gradients();
  if (overflowed) {
    losses_ += at::where(*overflowed > 0, 0, step_loss_);
    steps_ += 1 - *overflowed;
  } else {
    losses_ += step_loss_;
    steps_ += 1;
  }
  step_loss_.zero_();
  return {};
}

void Step::forget() {
  if (sum_) sum_->begin_again();
  optimizer_->forget_gradients();
  step_loss_.zero_();
}

bool Step::halve(std::int64_t samples) {
  if (pieces_ >= samples) return false;
  pieces_ *= 2;
  return true;
}

std::optional<double> Step::take_mean_loss() {
  const double steps = steps_.item<double>();
  if (steps == 0 && scaler_ && scaler_->factor() >= 1) return std::nullopt;
  const double mean = losses_.item<double>() / steps;
  forget_losses();
  return mean;
}

void Step::forget_losses() {
  losses_.zero_();
  steps_.zero_();
}

Named Step::state() const {
  auto tensors = weights_of(network_);
  for (const auto& [kind, all] : optimizer_->state()) {
    std::size_t i = 0;
    for (const auto& item : network_.named_parameters())
      tensors.emplace_back("optimizer." + kind + "." + item.key(), all[i++]);
  }
  if (scaler_) {
    for (const auto& item : scaler_->state()) tensors.push_back(item);
  }
  return tensors;
}

}  // namespace fullwatt::engine
