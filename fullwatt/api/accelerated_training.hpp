#pragma once

#include "fullwatt/api/optimized_loader_state.hpp"
#include "fullwatt/api/training_accelerator.hpp"
#include "fullwatt/api/training_course.hpp"
#include "fullwatt/engine/accelerator.hpp"

namespace fullwatt::api {

/// A module that the engine trains: what TrainingAccelerator has once it is set up.
class AcceleratedTraining {
 public:
  /// The module must outlive it.
  AcceleratedTraining(torch::nn::Module& network, Loss loss, const TrainingConfig& config);
  ~AcceleratedTraining();
  AcceleratedTraining(const AcceleratedTraining&) = delete;
  AcceleratedTraining& operator=(const AcceleratedTraining&) = delete;

  const TrainingConfig& config() const { return config_; }
  at::Device device() const { return accelerator_->device(); }
  const std::shared_ptr<TrainingCourse>& course() { return course_; }
  engine::Named tensors() { return accelerator_->step().state(); }
  /// After a checkpoint.
  void begin_random_anew();
  AcceleratedConfig in_force() const;

  OptimizedLoader loader_of(Samples samples);
  /// Over which the learning rate follows its schedule.
  void plan_steps(std::uint64_t steps) { planned_steps_ = steps; }

  void step(const Fields& batch);
  /// Over as many of the loader's batches as make a step.
  void step(OptimizedLoader& loader);

 private:
  void take_step(const Fields& batch);
  void begin_step();
  void step_over(const Fields& batch);
  void step_over(OptimizedLoader& loader, std::uint64_t parts);
  void make_smaller();
  Fields on_device(const Fields& batch);
  bool is_as_first(const Fields& batch);
  DeviceCheck check() const;
  std::string graph() const;
  std::vector<SettingInForce> settings() const;

  torch::nn::Module& network_;
  TrainingConfig config_;
  std::unique_ptr<engine::Accelerator> accelerator_;
  std::shared_ptr<TrainingCourse> course_ = std::make_shared<TrainingCourse>();
  std::uint64_t planned_steps_ = 0;
  std::optional<bool> is_cached_;  ///< the newest loader's samples are kept on the device; nothing before there is one
  Fields first_;                   ///< without numbers: a graph takes batches of these shapes and types only
  std::size_t inputs_ = 0;
  bool is_input_copied_ = false;
};

}  // namespace fullwatt::api
