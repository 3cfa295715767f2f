#pragma once

#include "fullwatt/engine/accelerator.hpp"
#include "fullwatt/engine/train.hpp"

namespace fullwatt::engine {

/// What a training has before its first step: network and data, ready for the device.
class Preparation {
 public:
  /// The configuration must outlive it.
  static base::Result<Preparation> make(const Config& config, const TrainOptions& options);

  Task& task() const { return *task_; }
  Accelerator& accelerator() const { return *accelerator_; }
  const DataSet& data() const { return *data_; }
  /// Of one process.
  std::uint64_t batches_per_epoch() const { return batches_per_epoch_; }

  /// Settings that are not in force as they were given.
  std::vector<Otherwise> otherwise() const;
  /// What became of the fused kernels, a line for each kind that is wanted.
  std::vector<std::string> told_of_kernels() const;

 private:
  /// What is computed by kernels of ours, and of what of it they are; or why it is not.
  struct Fused {
    std::string name;
    base::Result<std::string> how;
  };

  explicit Preparation(const Config& config) : config_(&config), in_force_(config) {}
  base::Result<void> make_network(const TrainOptions& options);
  base::Result<void> open_data(const Place& place);
  void ask_model();
  void fuse();

  const Config* config_;
  Config in_force_;  ///< as the model takes it
  std::unique_ptr<Task> task_;
  std::unique_ptr<Accelerator> accelerator_;
  std::vector<Fused> fused_;
  std::unique_ptr<DataSet> data_;
  std::uint64_t batches_per_epoch_ = 0;
};

}  // namespace fullwatt::engine
