#pragma once

#include <vector>

#include <torch/nn/module.h>

#include "fullwatt/api/optimized_loader.hpp"
#include "fullwatt/api/performance_monitor.hpp"
#include "fullwatt/engine/config.hpp"

/// Training on LibTorch for C++ programs: `find_package(fullwatt COMPONENTS torch)`, link `fullwatt::torch`.
namespace fullwatt::api {

/// The settings of `fullwatt train`, as docs/train.md describes them. Those under `model` are not looked at.
using TrainingConfig = engine::Config;
/// How wrong a network is on a batch: a single number on the batch's device.
using Loss = std::function<at::Tensor(const Fields& batch)>;

/// A setting beside what came of it.
struct SettingInForce {
  std::string name;
  std::string configured;
  std::string in_force;
  std::string why;  ///< they differ; empty where they do not, or where the setting leaves the choice
};

/// Where the tensors of a step lie, as they were found, not as they were asked for.
struct DeviceCheck {
  std::size_t parameters = 0;
  std::size_t buffers = 0;
  std::uint64_t bytes = 0;             ///< of both
  std::size_t inputs = 0;              ///< of the last step; 0 before the first
  bool is_input_copied = false;        ///< the last batch lay elsewhere and was copied in the step: take the loader's
  std::vector<std::string> elsewhere;  ///< parameters and buffers that are not on the device that trains

  bool is_one_device() const { return elsewhere.empty(); }
};

/// What is really in force.
struct AcceleratedConfig {
  std::string device;     ///< cpu, cuda:0
  std::string precision;  ///< fp32, bf16, fp16
  bool tf32 = false;
  bool channels_last = false;  ///< of weights of four dimensions, where there are any
  bool fused_optimizer = false;
  std::string graph;  ///< that each step is one CUDA graph, or why not
  int loader_threads = 0;
  int batches_ahead = 0;
  bool pinned_memory = false;
  std::int64_t batch_size = 0;
  std::int64_t effective_batch = 0;  ///< samples of a step
  std::int64_t pieces = 1;           ///< in which a batch is computed, for lack of memory
  DeviceCheck check;
  std::vector<SettingInForce> settings;  ///< all of them
};

struct TrainOptions {
  std::optional<std::uint64_t> epochs;  ///< in all, with those of a checkpoint; absent: train.epochs
  /// Goes on from the newest checkpoint in output.folder, writes one each output.every_epochs, and one at the end.
  bool checkpoints = false;
  /// Called each train.log_every steps and at the end of an epoch; false ends the training.
  std::function<bool(const TrainingFigures&)> progress = {};
};

struct TrainingResult {
  std::uint64_t steps = 0;     ///< that were made now
  bool is_complete = false;    ///< all epochs are done
  std::optional<double> loss;  ///< the mean since the last progress
  double seconds = 0;
  double samples_per_second = 0;
};

/// Requirement T1: trains any module with any loss as fast as this machine can. Whatever fails is thrown as
/// std::runtime_error that says what to do; what the loss throws goes through. All calls belong to one thread, which
/// works on a stream of its own where there is a GPU.
class TrainingAccelerator {
 public:
  TrainingAccelerator(std::shared_ptr<torch::nn::Module> network, Loss loss);
  ~TrainingAccelerator();
  TrainingAccelerator(TrainingAccelerator&&) noexcept;
  TrainingAccelerator& operator=(TrainingAccelerator&&) noexcept;

  /// Chooses the device, moves the module there, sets torch's switches and seed. The first of all calls.
  AcceleratedConfig setup_gpu_training(const TrainingConfig& config = {});
  /// From a file of `fullwatt train`; `overrides` are such as "train.batch_size=128".
  AcceleratedConfig setup_gpu_training(const std::string& file, const std::vector<std::string>& overrides = {});
  /// As it is now: after the first step it knows of the graph and the inputs, too.
  AcceleratedConfig accelerated_config() const;

  /// From arrays in memory, each of whose first dimension counts the samples. They must not be changed meanwhile.
  OptimizedLoader optimize_data_loading(const Fields& arrays);
  /// From samples that the program makes itself.
  OptimizedLoader optimize_data_loading(SampleSource source);
  /// From .npy files, each field with the pattern of its files, such as {"images", "*images.npy"}.
  OptimizedLoader optimize_data_loading(const std::string& folder, const std::map<std::string, std::string>& fields);
  /// From what the configuration says under `data`.
  OptimizedLoader optimize_data_loading();

  /// From now on the GPU that trains is looked at, ten times a second.
  PerformanceMonitor enable_performance_monitoring();

  /// One step of the optimiser over a batch, without waiting for the device. Bytes become numbers from 0 to 1, other
  /// fractions float32. Where memory does not suffice it is made in smaller pieces. Throws where a parameter is not on
  /// the device any more, and where a batch in the host's memory has numbers beyond data.limits. The learning rate
  /// follows its schedule over train.epochs of the newest loader.
  void step(const Fields& batch);
  TrainingResult train(OptimizedLoader& loader, const TrainOptions& options = {});
  /// Steps that are done, with those of a checkpoint.
  std::uint64_t steps() const;

  /// A checkpoint in output.folder, of which the three newest stay; its path.
  std::string save(const OptimizedLoader& loader);
  /// The newest checkpoint that can be read: weights, optimiser, random state, and the loader where it was. False where
  /// there is none.
  bool resume(OptimizedLoader& loader);

 private:
  struct State;
  State& ready() const;

  std::unique_ptr<State> state_;
};

}  // namespace fullwatt::api
