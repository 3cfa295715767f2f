#include "fullwatt/explain/pace.hpp"

namespace fullwatt::explain {
namespace {

/// After these the GPU has nothing queued.
constexpr unsigned kDrains = step_flag::kSwitching | step_flag::kInTimes | step_flag::kInCauses |
                             step_flag::kEvaluated | step_flag::kSaved | step_flag::kCounting;
/// Shorter than this share of the GPU's work is too short.
constexpr double kHurriedShare = 0.9;
/// The driver's queue takes about a thousand launches; no host is further ahead.
constexpr double kQueueLength = 1100;
/// A step pays when it is longer than the GPU's work by about what is owed, this part more or less.
constexpr double kTolerance = 0.5;

class Settler {
 public:
  Settler(const std::vector<TrainingStep>& steps, const GpuPace& gpu) : steps_(steps), gpu_(gpu) {
    for (const auto& step : steps) settled_.ms.push_back(step.ms());
    settled_.hurried.assign(steps.size(), false);
  }

  Settled settle() {
    for (std::size_t i = 0; i < steps_.size() && gpu_.busy_ms > 0; ++i) take(i);
    return std::move(settled_);
  }

 private:
  void take(std::size_t i) {
    const double ms = steps_[i].ms();
    if (steps_[i].has(kDrains)) return begin();
    filling_ = filling_ && ms < kHurriedShare * gpu_.busy_ms && owed_ms_ / gpu_.busy_ms * gpu_.launches < kQueueLength;
    if (filling_) {
      settled_.hurried[i] = true;
      group_.push_back(i);
      owed_ms_ += gpu_.busy_ms - ms;
    } else if (pays(ms)) {
      share(i);
      begin();
    }
  }

  void begin() {
    filling_ = true;
    owed_ms_ = 0;
    group_.clear();
  }

  bool pays(double ms) const {
    const double more = ms - gpu_.busy_ms;
    return owed_ms_ > kTolerance * gpu_.busy_ms && more > (1 - kTolerance) * owed_ms_ &&
           more < (1 + kTolerance) * owed_ms_;
  }

  void share(std::size_t payer) {
    group_.push_back(payer);
    double sum = 0;
    for (const auto index : group_) sum += steps_[index].ms();
    for (const auto index : group_) {
      settled_.ms[index] = sum / static_cast<double>(group_.size());
      settled_.hurried[index] = false;
    }
  }

  const std::vector<TrainingStep>& steps_;
  GpuPace gpu_;
  Settled settled_;
  std::vector<std::size_t> group_;
  double owed_ms_ = 0;
  bool filling_ = true;
};

}  // namespace

Settled settle(const std::vector<TrainingStep>& steps, const GpuPace& gpu) {
  return Settler(steps, gpu).settle();
}

}  // namespace fullwatt::explain
