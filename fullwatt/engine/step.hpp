#pragma once

#include <functional>
#include <memory>

#include "fullwatt/engine/augment.hpp"
#include "fullwatt/engine/gradient_sum.hpp"
#include "fullwatt/engine/optimizer.hpp"
#include "fullwatt/engine/run_recording.hpp"
#include "fullwatt/engine/scaler.hpp"
#include "fullwatt/engine/task.hpp"

namespace fullwatt::engine {

struct StepSettings {
  Precision precision = Precision::fp32;  ///< not automatic
  double clip = 0;                        ///< of the gradients' norm; 0: none
  bool channels_last = false;
  AugmentConfig augment;
  Normalisation normalisation;
};

/// One step of the training, for any network and loss: parts of a batch are added, then the optimiser moves.
class Step {
 public:
  using Loss = std::function<at::Tensor(const Fields&)>;

  /// The network is on the device already.
  Step(torch::nn::Module& network, Loss loss, const OptimizerConfig& config, const StepSettings& settings,
       at::Device device);

  /// From now on gradients are averaged over all processes.
  void share(std::unique_ptr<GradientSum> sum) { sum_ = std::move(sum); }
  GradientSum* sum() { return sum_.get(); }
  /// From now on the host's time in backward is told; null: not.
  void record_by(RunRecording* recording) { recording_ = recording; }

  /// Adds the gradients of a part; `weight` is its share of the whole. Bytes become numbers from 0 to 1, other
  /// fractions float32, and the field `images` is augmented, here on the device. Throws c10::OutOfMemoryError; the step
  /// must then be begun again.
  void add(const Fields& batch, double weight, bool is_last = true);
  /// Moves the weights and forgets the gradients. Fails where another process was lost.
  base::Result<void> apply();
  /// Begins the step again.
  void forget();

  /// From now on every part is computed in twice as many pieces, which need about half the memory; false when it cannot
  /// be cut any more.
  bool halve(std::int64_t samples);
  std::int64_t pieces() const { return pieces_; }

  /// The mean loss since it was last asked for; waits for the device. Nothing where the scaler left out every step, as
  /// long as a smaller factor may still help.
  std::optional<double> take_mean_loss();
  /// Losses and steps since then, on the device: with other processes' added, the mean is that of all.
  std::vector<at::Tensor> loss_sums() const { return {losses_, steps_}; }
  void forget_losses();

  Optimizer& optimizer() { return *optimizer_; }
  /// Weights, buffers, the optimiser's and the scaler's state.
  Named state() const;
  const StepSettings& settings() const { return settings_; }
  at::Device device() const { return device_; }

 private:
  Fields prepared(const Fields& batch) const;
  void add_piece(const Fields& batch, double weight);

  torch::nn::Module& network_;
  Loss loss_;
  StepSettings settings_;
  at::Device device_;
  Augmentation augmentation_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Scaler> scaler_;
  std::unique_ptr<GradientSum> sum_;
  RunRecording* recording_ = nullptr;
  std::int64_t pieces_ = 1;
  at::Tensor step_loss_;  ///< of the step that is being made
  at::Tensor losses_;     ///< of whole steps, added up; those that the scaler left out are not in it
  at::Tensor steps_;      ///< in `losses_`
};

std::int64_t samples_of(const Fields& batch);

/// The weights and buffers of a network, by the names that PyTorch gives them.
Named weights_of(const torch::nn::Module& network);

}  // namespace fullwatt::engine
