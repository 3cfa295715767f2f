#include "fullwatt/explain/idle.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

namespace fullwatt::explain {
namespace {

/// A kernel that starts this long after its launch returned was queued: the host is ahead.
constexpr std::uint64_t kQueuedNs = 20'000;
/// What recording a call into CUDA costs the host. Measured on an H200: 8 to 15 µs for a kernel with its three to five
/// calls.
constexpr double kRecordingMs = 0.002;
/// Recording makes launches at most this much longer, so that this share of their time is at least their own.
constexpr double kLeastOwnShare = 0.4;

std::size_t index(HostPhase phase) {
  return static_cast<std::size_t>(phase);
}

/// Kernels are launched in these; the others only make the GPU wait.
bool launches(HostPhase phase) {
  return phase == HostPhase::backward || phase == HostPhase::optimizer || phase == HostPhase::rest;
}

double sum(const PhaseTimes& times) {
  return std::accumulate(times.begin(), times.end(), 0.0);
}

/// Of the time that plain steps spend in a phase, the share in which the GPU had nothing to do.
double idle_share(const GpuTime& time, std::size_t phase) {
  if (time.host_phase_ms[phase] > 0) return std::min(1.0, time.idle_phase_ms[phase] / time.host_phase_ms[phase]);
  return time.window_step_ms > 0 ? std::max(0.0, 1 - time.busy_ms / time.window_step_ms) : 1;
}

/// What of the idle time lies in the launching phases: as the windows have it, else as long as the phases are.
void share_out(double ms, const Steps& steps, const GpuTime& time, PhaseTimes& idle) {
  PhaseTimes shares{};
  for (std::size_t i = 0; i < kHostPhases; ++i) {
    if (launches(static_cast<HostPhase>(i))) shares[i] = time.idle_phase_ms[i];
  }
  if (sum(shares) <= 0) {
    for (std::size_t i = 0; i < kHostPhases; ++i) {
      if (launches(static_cast<HostPhase>(i))) shares[i] = steps.phase_ms[i];
    }
  }
  if (sum(shares) <= 0) shares[index(HostPhase::rest)] = 1;
  const double total = sum(shares);
  for (std::size_t i = 0; i < kHostPhases; ++i) idle[i] += ms * shares[i] / total;
}

/// When the GPU was seen to have work waiting.
std::vector<std::uint64_t> moments_ahead(const CausesWindow& window) {
  std::vector<std::uint64_t> moments;
  for (const auto& activity : window.activities) {
    const auto launch = window.launches.find(activity.correlation);
    if (launch == window.launches.end()) continue;
    if (activity.start_ns > launch->second.end_ns + kQueuedNs) moments.push_back(activity.start_ns);
  }
  return moments;
}

/// What a drained queue can be blamed for: not for waits and pauses that are causes of their own.
bool hidden_when_ahead(Work work) {
  return work == Work::launch || work == Work::python || work == Work::allocator || work == Work::module_load ||
         work == Work::unexplained;
}

class Weigher {
 public:
  Weigher(const CausesWindow& window, bool ahead, IdleWeights& weights)
      : window_(window),
        moments_(moments_ahead(window)),
        ahead_(ahead && !window.launches.empty()),
        weights_(weights) {}

  void weigh() {
    const auto gaps = gaps_between(united(window_.activities), window_.window.range);
    auto gap = gaps.begin();
    for (const auto& segment : window_.host) {
      while (gap != gaps.end() && gap->end_ns <= segment.range.start_ns) ++gap;
      for (auto at = gap; at != gaps.end() && at->start_ns < segment.range.end_ns; ++at) {
        charge(segment, {std::max(at->start_ns, segment.range.start_ns), std::min(at->end_ns, segment.range.end_ns)},
               *at);
      }
      if (segment.blocks) block_ = &segment;
    }
  }

 private:
  void charge(const HostSegment& segment, const Interval& piece, const Interval& gap) {
    if (segment.work == Work::agent) return;
    if (const auto* queued = queued_at(gap)) return add(segment.phase, Work::launch, queued->line, piece);
    if (!ahead_ || !hidden_when_ahead(segment.work) || is_ahead(piece.start_ns)) {
      return add(segment.phase, segment.work, segment.line, piece);
    }
    // Before the first wait it was the window itself that emptied the queue.
    if (block_ != nullptr) add(segment.phase, block_->work, block_->line, piece);
  }

  void add(HostPhase phase, Work work, std::uint32_t line, const Interval& piece) {
    weights_[{phase, work, line}] += static_cast<double>(piece.length_ns()) / 1e6;
  }

  /// Something has been queued since the last wait.
  bool is_ahead(std::uint64_t time) const {
    const auto since = block_ == nullptr ? window_.window.range.start_ns : block_->range.end_ns;
    const auto next = std::ranges::lower_bound(moments_, since);
    return next != moments_.end() && *next <= time;
  }

  /// Where the kernel that ends the gap was launched from, when that was before the gap: then the host did its part,
  /// and the gap is what the GPU itself needs from one kernel to the next.
  const HostSegment* queued_at(const Interval& gap) const {
    const auto next = std::ranges::lower_bound(window_.activities, gap.end_ns, {}, &model::GpuActivity::start_ns);
    if (next == window_.activities.end() || next->start_ns != gap.end_ns) return nullptr;
    const auto launch = window_.launches.find(next->correlation);
    if (launch == window_.launches.end() || launch->second.end_ns > gap.start_ns) return nullptr;
    return window_.at(launch->second.start_ns);
  }

  const CausesWindow& window_;
  std::vector<std::uint64_t> moments_;
  bool ahead_;
  IdleWeights& weights_;
  const HostSegment* block_ = nullptr;
};

/// Recording lengthens the launches, so that they weigh too much against all else: what the windows' steps are longer
/// than plain ones, waiting for data apart, is taken from them.
void take_recording(const RecordedCauses& causes, const Steps& steps, IdleWeights& weights) {
  const auto busy_host = [](const HostSegment& segment) {
    return segment.work != Work::data_wait && segment.work != Work::agent;
  };
  const double excess = causes.mean_ms(busy_host) - (steps.mean_ms() - steps.phase(HostPhase::data));
  double launching = 0;
  for (const auto& [key, ms] : weights) launching += key.work == Work::launch ? ms : 0;
  if (excess <= 0 || launching <= 0) return;
  const double factor = std::max(kLeastOwnShare, 1 - excess * causes.steps() / launching);
  for (auto& [key, ms] : weights) {
    if (key.work == Work::launch) ms *= factor;
  }
}

}  // namespace

PhaseTimes idle_by_phase(const Steps& steps, const GpuTime& time) {
  PhaseTimes idle{};
  const double total = std::max(0.0, steps.mean_ms() - time.busy_ms);
  for (std::size_t i = 0; i < kHostPhases; ++i) {
    const auto phase = static_cast<HostPhase>(i);
    if (!launches(phase) && phase != HostPhase::agent) idle[i] = steps.phase_ms[i] * idle_share(time, i);
  }
  const double waiting = sum(idle);
  if (waiting > total) {
    for (auto& ms : idle) ms *= total / waiting;
  } else {
    share_out(total - waiting, steps, time, idle);
  }
  return idle;
}

bool host_runs_ahead(const RecordedCauses& causes, const GpuTime& time, bool loads_itself) {
  double host = 0;
  for (const auto& window : causes.windows) {
    for (const auto& segment : window.host) {
      const bool waits = segment.work == Work::data_wait && !loads_itself;
      if (segment.blocks || waits || segment.work == Work::agent) continue;
      host += own_ms(segment) - (segment.call >= 0 ? kRecordingMs : 0);
    }
  }
  return causes.steps() > 0 && host / causes.steps() < time.busy_ms;
}

IdleWeights idle_weights(const RecordedCauses& causes, const Steps& steps, const GpuTime& time, bool loads_itself) {
  IdleWeights weights;
  const bool ahead = host_runs_ahead(causes, time, loads_itself);
  for (const auto& window : causes.windows) Weigher(window, ahead, weights).weigh();
  take_recording(causes, steps, weights);
  return weights;
}

}  // namespace fullwatt::explain
