#pragma once

#include <optional>

#include "fullwatt/engine/batches.hpp"
#include "fullwatt/engine/otherwise.hpp"
#include "fullwatt/engine/step_graph.hpp"
#include "fullwatt/engine/training_stream.hpp"

namespace fullwatt::engine {

/// A network made ready for a device: the device chosen, torch's switches set, steps in the wanted precision, as graphs
/// where they can be. It sets the stream of the thread that makes it, which must also be the one that ends it.
class Accelerator {
 public:
  /// The network is moved to the device. It and what `loss` uses must outlive the accelerator. Where there are other
  /// processes, it waits for them.
  static base::Result<std::unique_ptr<Accelerator>> make(torch::nn::Module& network, Step::Loss loss,
                                                         const Config& config, const Place& place = {});
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  at::Device device() const { return device_; }
  Step& step() { return *step_; }
  /// The processes that train together; nothing for one alone.
  Group* group() { return group_.get(); }
  LoaderOptions loader_options() const;
  Delivery delivery() const;

  /// One step over so many of the next batches. False when there are none any more. Throws c10::OutOfMemoryError.
  base::Result<bool> make_step(Batches& batches, std::uint64_t parts);
  /// After that error: what the step has taken of the device is given back. The same batches must come again.
  void begin_step_again();
  /// The same in smaller pieces: false when a batch cannot be computed in smaller pieces.
  bool halve();

  /// After a checkpoint: random numbers are drawn as by a training that goes on from it. Only cuDNN's dropout, whose
  /// state no checkpoint holds, must be told.
  void begin_random_anew();

  /// Of `fullwatt run`; null elsewhere.
  const RunRecording* recording() const { return recording_; }
  /// What is trained now is for that alone. Not with other processes, which would wait for this one.
  bool repeats_batch() const { return recording_ != nullptr && recording_->repeats_batch() && place_.size == 1; }

  /// Settings that are not in force as they were given; `data` is what is trained on.
  std::vector<Otherwise> otherwise(const DataSet& data) const;
  /// Why there is no graph, or that there is one; empty until it was tried.
  const std::string& told_of_graph() const { return told_of_graph_; }

 private:
  Accelerator(torch::nn::Module& network, const Config& config, const Place& place)
      : network_(network), config_(config), place_(place) {}
  base::Result<void> choose_device();
  int generation() const;  ///< of the GPU; 0 on the CPU
  void set_switches() const;
  base::Result<std::optional<Fields>> next(Batches& batches);
  base::Result<void> check_inputs(const Fields& batch) const;
  bool may_have_graph() const;
  /// Batches of a whole step.
  std::uint64_t parts_of_step() const { return static_cast<std::uint64_t>(config_.train.accumulation); }
  StepGraph* graph_for(const Fields& batch, std::uint64_t parts);

  torch::nn::Module& network_;
  Config config_;
  Place place_;
  at::Device device_ = at::kCPU;
  std::size_t free_bytes_ = 0;            ///< of the GPU, once the network is there
  std::optional<TrainingStream> stream_;  ///< of a GPU
  std::unique_ptr<Group> group_;
  std::unique_ptr<Step> step_;
  std::unique_ptr<StepGraph> graph_;
  RunRecording* recording_ = nullptr;
  std::optional<Fields> last_;  ///< batch, where it may have to come again
  bool may_record_ = true;
  std::string told_of_graph_;
};

}  // namespace fullwatt::engine
