#include "fullwatt/explain/gpu_time.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "fullwatt/explain/causes.hpp"
#include "fullwatt/explain/windows.hpp"

namespace fullwatt::explain {
namespace {

using model::GpuActivity;
using Kind = GpuActivity::Kind;

// CUPTI's numbers for a copy's direction and for pageable memory.
constexpr std::uint8_t kToDevice = 1;
constexpr std::uint8_t kToHost = 2;
constexpr std::uint8_t kOnDevice = 8;
constexpr std::uint8_t kPageable = 1;

double ms_of(const GpuActivity& activity) {
  return static_cast<double>(activity.end_ns - activity.start_ns) / 1e6;
}

/// Which GPU did the most.
int busiest_device(const model::TrainingProcess& process) {
  std::map<int, double> busy;
  for (const auto& activity : process.activities) busy[activity.device] += ms_of(activity);
  const auto most = std::ranges::max_element(busy, {}, [](const auto& item) { return item.second; });
  return most == busy.end() ? 0 : most->first;
}

/// Kernels first, then copies, then communication: what is hidden behind a kernel costs nothing.
enum class Priority { kernel, copy, communication };

class Measure {
 public:
  Measure(const model::TrainingProcess& process, GpuTime& time) : process_(process), time_(time), causes_(process) {}

  void add(const StepWindow& window) {
    const auto activities = activities_in(process_, window, time_.device);
    if (activities.empty()) return;  // CUPTI was not to be had in this one
    const auto joined = united(activities);
    const auto phases = phases_in(process_, window.range);
    time_.steps += window.steps();
    time_.busy_ms += total_ms(joined);
    const auto end = std::max(window.range.end_ns, joined.back().end_ns);
    time_.window_step_ms += static_cast<double>(end - window.range.start_ns) / 1e6;
    add_phases(phases, gaps_between(joined, window.range));
    charge(activities);
    for (const auto& activity : activities) count(activity);
  }

  void finish() {
    divide_by_steps();
    for (const auto& [cause, ms] : parts_) time_.busy.push_back({cause, ms / time_.steps});
    collect();
  }

 private:
  struct Sum {
    double ms = 0;
    double count = 0;
    double blocks = 0;
  };

  Priority priority_of(const GpuActivity& activity) {
    if (activity.kind != Kind::kernel) return Priority::copy;
    return causes_.communicates(activity) ? Priority::communication : Priority::kernel;
  }

  /// Splits the time in which anything ran: at one moment the first of the most important ones is charged.
  void charge(const std::vector<GpuActivity>& activities) {
    std::vector<Interval> covered;
    for (const auto priority : {Priority::kernel, Priority::copy, Priority::communication}) {
      std::vector<GpuActivity> chosen;
      for (const auto& activity : activities) {
        if (priority_of(activity) == priority) chosen.push_back(activity);
      }
      charge_uncovered(chosen, covered);
      auto all = chosen;
      for (const auto& interval : covered) {
        all.push_back({.start_ns = interval.start_ns, .end_ns = interval.end_ns});
      }
      std::ranges::stable_sort(all, {}, &GpuActivity::start_ns);
      covered = united(all);
    }
  }

  void charge_uncovered(const std::vector<GpuActivity>& activities, const std::vector<Interval>& covered) {
    std::uint64_t done = 0;
    auto hidden = covered.begin();
    for (const auto& activity : activities) {
      auto start = std::max(activity.start_ns, done);
      done = std::max(done, activity.end_ns);
      double exposed = 0;
      while (hidden != covered.end() && hidden->end_ns <= start) ++hidden;
      for (auto at = hidden; start < activity.end_ns; ++at) {
        const bool last = at == covered.end() || at->start_ns >= activity.end_ns;
        const auto until = last ? activity.end_ns : std::max(start, at->start_ns);
        exposed += static_cast<double>(until - start) / 1e6;
        if (last) break;
        start = std::max(start, at->end_ns);
      }
      if (exposed > 0) parts_[causes_.cause(activity)] += exposed;
    }
  }

  void count(const GpuActivity& activity) {
    if (activity.kind == Kind::kernel) {
      auto& sum = kernels_[activity.name];
      sum.ms += ms_of(activity);
      sum.count += 1;
      sum.blocks += activity.blocks;
    } else if (activity.kind == Kind::copy) {
      using Direction = CopyUse::Direction;
      const auto direction = activity.copy_kind == kToDevice   ? Direction::to_device
                             : activity.copy_kind == kToHost   ? Direction::to_host
                             : activity.copy_kind == kOnDevice ? Direction::on_device
                                                               : Direction::other;
      const bool pageable = activity.source_kind == kPageable || activity.destination_kind == kPageable;
      auto& use = copies_[{direction, pageable}];
      use.direction = direction;
      use.pageable = pageable;
      use.ms += ms_of(activity);
      use.count += 1;
      use.bytes += static_cast<double>(activity.bytes);
    }
  }

  void add_phases(const std::vector<PhasePiece>& phases, const std::vector<Interval>& gaps) {
    for (const auto& piece : phases) {
      time_.host_phase_ms[static_cast<std::size_t>(piece.phase)] += static_cast<double>(piece.range.length_ns()) / 1e6;
    }
    for_each_overlap(phases, gaps, [&](const PhasePiece& piece, const Interval&, const Interval& common) {
      time_.idle_phase_ms[static_cast<std::size_t>(piece.phase)] += static_cast<double>(common.length_ns()) / 1e6;
    });
  }

  void divide_by_steps() {
    time_.busy_ms /= time_.steps;
    time_.window_step_ms /= time_.steps;
    for (auto& ms : time_.host_phase_ms) ms /= time_.steps;
    for (auto& ms : time_.idle_phase_ms) ms /= time_.steps;
  }

  void collect() {
    for (const auto& [name, sum] : kernels_) {
      time_.kernels.push_back({kernel_name(process_.text(name)), causes_.kernel(name), sum.ms / time_.steps,
                               sum.count / time_.steps, sum.blocks / sum.count});
    }
    std::ranges::sort(time_.kernels,
                      [](const auto& a, const auto& b) { return std::tie(b.ms, a.name) < std::tie(a.ms, b.name); });
    for (auto& [key, use] : copies_) {
      use.ms /= time_.steps;
      use.count /= time_.steps;
      use.bytes /= time_.steps;
      time_.copies.push_back(use);
    }
  }

  const model::TrainingProcess& process_;
  GpuTime& time_;
  GpuCauses causes_;
  std::unordered_map<std::uint32_t, Sum> kernels_;
  std::map<std::pair<CopyUse::Direction, bool>, CopyUse> copies_;
  std::map<std::string, double> parts_;
};

}  // namespace

const KernelClass& GpuCauses::kernel(std::uint32_t name) {
  const auto [at, fresh] = classes_.try_emplace(name);
  if (fresh) at->second = classify_kernel(process_.text(name));
  return at->second;
}

const std::string& GpuCauses::cause(const model::GpuActivity& activity) {
  static const std::string kToDeviceCause(cause::kGpuCopyToDevice);
  static const std::string kToHostCause(cause::kGpuCopyToHost);
  static const std::string kCopyCause(cause::kGpuCopy);
  if (activity.kind == Kind::copy && activity.copy_kind == kToDevice) return kToDeviceCause;
  if (activity.kind == Kind::copy && activity.copy_kind == kToHost) return kToHostCause;
  if (activity.kind != Kind::kernel) return kCopyCause;
  const auto kind = kernel(activity.name).kind;
  const auto [at, fresh] = kinds_.try_emplace(kind);
  if (fresh) at->second = std::string(cause::kGpuPrefix) + std::string(kind);
  return at->second;
}

bool GpuCauses::communicates(const model::GpuActivity& activity) {
  return activity.kind == Kind::kernel && kernel(activity.name).kind == "communication";
}

void fit_into(double step_ms, GpuTime& time) {
  if (time.busy_ms <= step_ms) return;
  for (auto& part : time.busy) part.ms *= step_ms / time.busy_ms;
  time.busy_ms = step_ms;
}

MeasuredSteps measure_steps(const model::TrainingProcess& process) {
  MeasuredSteps measured;
  measured.time = measure_gpu_time(process, training_steps(process));
  double launches = 0;
  for (const auto& kernel : measured.time.kernels) launches += kernel.count;
  for (const auto& copy : measured.time.copies) launches += copy.count;
  measured.steps = find_steps(process, {measured.time.busy_ms, launches});
  if (measured.steps.known()) fit_into(measured.steps.mean_ms(), measured.time);
  return measured;
}

GpuTime measure_gpu_time(const model::TrainingProcess& process, const Steps& steps) {
  auto time = measure_gpu_time(process, steps.all);
  if (steps.known()) fit_into(steps.mean_ms(), time);
  return time;
}

GpuTime measure_gpu_time(const model::TrainingProcess& process, const std::vector<TrainingStep>& steps) {
  GpuTime time;
  time.idle_phase_ms.assign(kHostPhases, 0);
  time.host_phase_ms.assign(kHostPhases, 0);
  if (process.activities.empty()) return time;
  time.device = busiest_device(process);
  auto windows = step_windows(process, steps, model::RecordedWindow::Mode::times);
  if (windows.empty()) {
    windows = step_windows(process, steps, model::RecordedWindow::Mode::causes);
    time.from_causes = true;
  }
  Measure measure(process, time);
  for (const auto& window : windows) measure.add(window);
  if (time.known()) measure.finish();
  return time;
}

std::vector<model::KernelGroup> kernel_groups(const GpuTime& time) {
  std::map<KernelClass, model::KernelGroup> groups;
  for (const auto& use : time.kernels) {
    auto& group = groups[use.kind];
    if (group.example.empty()) group.example = use.name;  // they come by length
    group.kind = use.kind.kind;
    group.precision = use.kind.precision;
    group.tensor_cores = use.kind.tensor_cores;
    group.ms += use.ms;
    group.count += use.count;
  }
  std::vector<model::KernelGroup> sorted;
  for (auto& [kind, group] : groups) sorted.push_back(std::move(group));
  std::ranges::stable_sort(sorted, std::greater{}, &model::KernelGroup::ms);
  return sorted;
}

}  // namespace fullwatt::explain
