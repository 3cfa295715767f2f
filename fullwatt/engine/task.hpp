#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "fullwatt/base/error.hpp"
#include "fullwatt/engine/config.hpp"

namespace fullwatt::engine {

class KernelSet;

/// The fields of a batch, on the device that trains.
using Fields = std::map<std::string, at::Tensor>;

/// What is trained: a network, the fields of a sample that it needs, and how wrong it is.
class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  virtual torch::nn::Module& network() = 0;
  virtual std::vector<std::string> fields() const = 0;
  virtual at::Tensor loss(const Fields& batch) = 0;
  /// Fields whose numbers count something, from 0 to below this. A GPU would not survive others.
  virtual std::map<std::string, std::int64_t> limits() const { return {}; }
  /// Targets are places in the pictures, which would have to move with them.
  virtual bool has_places() const { return false; }
  /// Of pictures, where the configuration says nothing.
  virtual Normalisation normalisation() const { return {}; }
  /// From now on activations are computed again in backward. False where there are none that it would save.
  virtual bool recompute() { return false; }
  /// From now on batch norms are computed by these kernels; null: by torch's own. False where there are none.
  virtual bool fuse_norms(const c10::intrusive_ptr<KernelSet>& /*kernels*/) { return false; }
  /// The same of a loss over classes.
  virtual bool fuse_loss(const c10::intrusive_ptr<KernelSet>& /*kernels*/) { return false; }
};

/// Every model of `models/`, by the name that a configuration gives.
base::Result<std::unique_ptr<Task>> make_task(const ModelConfig& config);

std::unique_ptr<Task> make_gpt2(const ModelConfig& config);
std::unique_ptr<Task> make_lstm(const ModelConfig& config);
std::unique_ptr<Task> make_keypoint(const ModelConfig& config);
std::unique_ptr<Task> make_resnet(const ModelConfig& config);

}  // namespace fullwatt::engine
