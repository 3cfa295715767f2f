#pragma once

#include <memory>

#include "fullwatt/api/gpu_watch.hpp"
#include "fullwatt/api/performance_monitor.hpp"
#include "fullwatt/engine/step.hpp"

namespace fullwatt::api {

/// What a training did so far. Several may ask, each for the time since it asked last.
class TrainingCourse {
 public:
  struct Mark {
    GpuWatch::Clock::time_point at;
    std::uint64_t steps = 0;
    std::int64_t samples = 0;
    double losses = 0;
    double losses_counted = 0;
  };

  void train_by(engine::Step* step) { step_ = step; }
  void watch_gpu(std::string address) {
    if (!watch_) watch_ = std::make_unique<GpuWatch>(std::move(address));
  }
  void no_gpu(std::string reason) { no_gpu_ = std::move(reason); }

  void stepped(std::int64_t samples);
  /// So many steps were made in an earlier process.
  void go_on_from(std::uint64_t step) { number_ = step; }
  std::uint64_t number() const { return number_; }

  Mark mark();
  TrainingFigures since(Mark& mark);

 private:
  void collect_losses();

  engine::Step* step_ = nullptr;  ///< where losses lie; null once the training is over
  std::unique_ptr<GpuWatch> watch_;
  std::string no_gpu_ = "nobody asked for the figures of a GPU";
  std::uint64_t number_ = 0;       ///< of steps in all
  std::uint64_t steps_ = 0;        ///< made here
  std::uint64_t uncollected_ = 0;  ///< whose losses lie on the device
  std::int64_t samples_ = 0;
  double losses_ = 0;
  double losses_counted_ = 0;
};

struct PerformanceMonitor::State {
  std::shared_ptr<TrainingCourse> course;
  TrainingCourse::Mark mark;
};

}  // namespace fullwatt::api
