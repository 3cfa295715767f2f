#include "fullwatt/api/performance_monitor.hpp"

#include "fullwatt/api/outcome.hpp"
#include "fullwatt/api/training_course.hpp"

namespace fullwatt::api {
namespace {

/// The device adds losses up in float32, which forgets small ones beside a large sum.
constexpr std::uint64_t kMostUncollected = 4096;

}  // namespace

void TrainingCourse::stepped(std::int64_t samples) {
  ++number_;
  ++steps_;
  samples_ += samples;
  if (++uncollected_ >= kMostUncollected) collect_losses();
}

void TrainingCourse::collect_losses() {
  if (step_ == nullptr || uncollected_ == 0) return;
  const auto counted = step_->loss_sums().back().item<double>();
  const auto mean = step_->take_mean_loss();
  uncollected_ = 0;
  if (!mean) return;
  losses_ += *mean * counted;
  losses_counted_ += counted;
}

TrainingCourse::Mark TrainingCourse::mark() {
  collect_losses();
  return {GpuWatch::Clock::now(), steps_, samples_, losses_, losses_counted_};
}

TrainingFigures TrainingCourse::since(Mark& before) {
  const auto now = mark();
  const double seconds = std::chrono::duration<double>(now.at - before.at).count();
  TrainingFigures figures;
  figures.step = number_;
  figures.steps = now.steps - before.steps;
  figures.seconds = seconds;
  if (seconds > 0) figures.samples_per_second = static_cast<double>(now.samples - before.samples) / seconds;
  if (figures.steps > 0) figures.step_ms = seconds * 1e3 / static_cast<double>(figures.steps);
  if (now.losses_counted > before.losses_counted)
    figures.loss = (now.losses - before.losses) / (now.losses_counted - before.losses_counted);
  if (watch_) {
    figures.gpu = watch_->since(before.at);
  } else {
    figures.gpu.reason = no_gpu_;
  }
  before = now;
  return figures;
}

PerformanceMonitor::PerformanceMonitor(std::unique_ptr<State> state) : state_(std::move(state)) {}
PerformanceMonitor::PerformanceMonitor(PerformanceMonitor&&) noexcept = default;
PerformanceMonitor& PerformanceMonitor::operator=(PerformanceMonitor&&) noexcept = default;
PerformanceMonitor::~PerformanceMonitor() = default;

TrainingFigures PerformanceMonitor::figures() {
  return with_torch([&] { return state_->course->since(state_->mark); });
}

}  // namespace fullwatt::api
