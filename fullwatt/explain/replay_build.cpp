#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "fullwatt/explain/replay_data.hpp"

namespace fullwatt::explain {
namespace {

/// A kernel that starts later than this after its launch waited for something.
constexpr std::uint64_t kQueuedNs = 20'000;
/// A kernel that starts within this after one of another stream ended, though its own stream was free, waited for that
/// one.
constexpr std::uint64_t kHandOverNs = 10'000;
/// A wait returns within this after what it waited for.
constexpr std::uint64_t kReturnNs = 5'000;
constexpr double kWaitCostMs = 0.005;
/// Enough for a dozen steps of a thousand kernels; more would only take longer.
constexpr std::size_t kMostOperations = 60'000;
/// Of a step; one that the host is done with sooner only filled the GPU's queue.
constexpr double kHurried = 0.8;
/// Launches are at most four times as long while they are recorded.
constexpr double kLeastLaunchScale = 0.25;

double ms_of(const Interval& range) {
  return static_cast<double>(range.length_ns()) / 1e6;
}

/// Streams end their work in order, so that the last one to end before a moment is found by halving.
class StreamEnds {
 public:
  struct End {
    std::uint64_t end_ns = 0;
    std::int32_t operation = -1;
  };
  void add(std::uint64_t stream, std::uint64_t end_ns, std::int32_t operation) {
    auto& ends = streams_[stream];
    if (!ends.empty()) end_ns = std::max(end_ns, ends.back().end_ns);
    ends.push_back({end_ns, operation});
  }
  /// Of all streams but `except`.
  End last_before(std::uint64_t time, std::optional<std::uint64_t> except) const {
    End last;
    for (const auto& [stream, ends] : streams_) {
      if (except == stream) continue;
      const auto after = std::ranges::upper_bound(ends, time, {}, &End::end_ns);
      if (after != ends.begin() && std::prev(after)->end_ns >= last.end_ns) last = *std::prev(after);
    }
    return last;
  }
  std::uint64_t last_of(std::uint64_t stream) const {
    const auto at = streams_.find(stream);
    return at == streams_.end() || at->second.empty() ? 0 : at->second.back().end_ns;
  }

 private:
  std::map<std::uint64_t, std::vector<End>> streams_;
};

class Builder {
 public:
  Builder(const model::TrainingProcess& process, const RecordedCauses& causes, Replay::Data& data)
      : sites_(causes.sites), gpu_(process), data_(data) {}

  void add(const CausesWindow& window) {
    sort_by_launch(window);
    ends_ = {};
    auto launch = launches_.begin();
    for (const auto& segment : window.host) {
      while (launch != launches_.end() && launch->launched.start_ns < segment.range.start_ns) ++launch;
      auto last = launch;
      while (last != launches_.end() && last->launched.start_ns < segment.range.end_ns) ++last;
      play_segment(segment, launch, last);
      launch = last;
    }
    data_.steps += window.steps();
  }
  void finish() { data_.streams = streams_.size(); }

 private:
  struct Launch {
    Interval launched;
    const model::GpuActivity* activity = nullptr;
  };
  using At = std::vector<Launch>::const_iterator;

  void sort_by_launch(const CausesWindow& window) {
    launches_.clear();
    for (const auto& activity : window.activities) {
      const auto call = window.launches.find(activity.correlation);
      if (call != window.launches.end()) launches_.push_back({call->second, &activity});
    }
    std::ranges::stable_sort(launches_, {}, [](const Launch& launch) { return launch.launched.start_ns; });
  }

  void play_segment(const HostSegment& segment, At first, At last) {
    if (segment.work == Work::agent) return;
    if (!segment.blocks) work(segment, own_ms(segment));
    for (auto at = first; at != last; ++at) put_on_gpu(segment, *at);
    if (segment.blocks) wait(segment);
  }

  void work(const HostSegment& segment, double ms) {
    const auto key = key_of(segment);
    auto& all = data_.operations;
    if (!all.empty() && all.back().kind == ReplayOperation::Kind::work && all.back().key == key) {
      all.back().host_ms += static_cast<float>(ms);
    } else {
      all.push_back({.kind = ReplayOperation::Kind::work, .key = key, .host_ms = static_cast<float>(ms)});
    }
  }

  void put_on_gpu(const HostSegment& segment, const Launch& launch) {
    const auto& activity = *launch.activity;
    ReplayOperation operation{.kind = ReplayOperation::Kind::launch};
    operation.stream = streams_.try_emplace(activity.stream, static_cast<std::uint16_t>(streams_.size())).first->second;
    operation.key = group_of(segment, activity);
    operation.gpu_ms = static_cast<float>(static_cast<double>(activity.end_ns - activity.start_ns) / 1e6);
    const bool queued = activity.start_ns > launch.launched.end_ns + kQueuedNs;
    if (queued && activity.start_ns > ends_.last_of(activity.stream) + kHandOverNs) {
      const auto other = ends_.last_before(activity.start_ns, activity.stream);
      if (other.end_ns + kHandOverNs >= activity.start_ns) operation.depends_on = other.operation;
    }
    ends_.add(activity.stream, activity.end_ns, static_cast<std::int32_t>(data_.operations.size()));
    data_.operations.push_back(operation);
  }

  void wait(const HostSegment& segment) {
    const auto target = ends_.last_before(segment.range.end_ns + kReturnNs, std::nullopt);
    const double ms = ms_of(segment.range);
    // What it waited for was launched before the window, or is none of this GPU's.
    if (target.operation < 0 || target.end_ns < segment.range.start_ns) return work(segment, std::min(ms, kWaitCostMs));
    data_.operations.push_back({.kind = ReplayOperation::Kind::wait,
                                .key = key_of(segment),
                                .host_ms = static_cast<float>(std::min(ms, kWaitCostMs)),
                                .depends_on = target.operation});
  }

  std::uint32_t key_of(const HostSegment& segment) {
    const auto [at, fresh] =
        keys_.try_emplace({segment.work, segment.phase, segment.line}, static_cast<std::uint32_t>(data_.keys.size()));
    if (fresh) data_.keys.push_back({segment.work, segment.phase, sites_.site(segment.line)});
    return at->second;
  }

  std::uint32_t group_of(const HostSegment& segment, const model::GpuActivity& activity) {
    const bool kernel = activity.kind == model::GpuActivity::Kind::kernel;
    const auto kind = kernel ? gpu_.kernel(activity.name) : KernelClass{.kind = "copy-"};
    const auto [at, fresh] = groups_.try_emplace({gpu_.cause(activity), kind, segment.line},
                                                 static_cast<std::uint32_t>(data_.groups.size()));
    if (fresh) data_.groups.push_back({gpu_.cause(activity), kind, sites_.site(segment.line)});
    return at->second;
  }

  const Sites& sites_;
  GpuCauses gpu_;
  Replay::Data& data_;
  StreamEnds ends_;
  std::vector<Launch> launches_;
  std::map<std::tuple<Work, HostPhase, std::uint32_t>, std::uint32_t> keys_;
  std::map<std::tuple<std::string, KernelClass, std::uint32_t>, std::uint32_t> groups_;
  std::unordered_map<std::uint64_t, std::uint16_t> streams_;
};

/// The loader's waits and the GPU's work as long as they are in plain steps and in the windows of kernel times.
void meet_times(const Steps& steps, const GpuTime& time, const RecordedCauses& causes, Replay::Data& data) {
  double gpu = 0;
  double waiting = 0;
  for (const auto& operation : data.operations) {
    if (operation.kind == ReplayOperation::Kind::launch) gpu += operation.gpu_ms / data.steps;
    if (operation.kind == ReplayOperation::Kind::work && data.keys[operation.key].work == Work::data_wait) {
      waiting += operation.host_ms / data.steps;
    }
  }
  double busy = 0;
  for (const auto& window : causes.windows) busy += total_ms(united(window.activities)) / causes.steps();
  const auto gpu_scale = static_cast<float>(busy > 0 && gpu > 0 ? std::clamp(time.busy_ms / busy, 0.5, 2.0) : 1);
  const auto wait_scale = static_cast<float>(waiting > 0 ? steps.phase(HostPhase::data) / waiting : 1);
  for (auto& operation : data.operations) {
    if (operation.kind == ReplayOperation::Kind::launch) operation.gpu_ms *= gpu_scale;
    const bool waits =
        operation.kind == ReplayOperation::Kind::work && data.keys[operation.key].work == Work::data_wait;
    if (waits) operation.host_ms *= wait_scale;
  }
}

/// A step of the host alone: in windows of kernel times, which begin with an empty queue, and elsewhere now and then,
/// it hurries ahead of the GPU. Nothing where it never does.
std::optional<double> host_pace(const Steps& steps) {
  std::vector<double> hurried;
  for (const auto index : steps.hurried) hurried.push_back(steps.all[index].ms());
  for (const auto& step : steps.all) {
    if (step.flags == step_flag::kInTimes && step.ms() < kHurried * steps.mean_ms()) hurried.push_back(step.ms());
  }
  if (hurried.size() < 2) return std::nullopt;
  std::ranges::nth_element(hurried, hurried.begin() + static_cast<std::ptrdiff_t>(hurried.size() / 2));
  return hurried[hurried.size() / 2];
}

/// Takes as much from the launches as brings the step, played with kernels `gpu` times as long, down to a length.
void scale_launches(Replay::Data& data, float gpu, double length_ms) {
  const std::vector<float> keys(data.keys.size(), 1);
  const std::vector<float> groups(data.groups.size(), gpu);
  double low = kLeastLaunchScale;
  double high = data.launch_scale;
  if (play(data, keys, groups) <= length_ms) return;
  for (int i = 0; i < 20; ++i) {
    data.launch_scale = (low + high) / 2;
    (play(data, keys, groups) > length_ms ? high : low) = data.launch_scale;
  }
  data.launch_scale = low;
}

/// Recording makes launches longer. The played step meets the measured one, and its host the pace it has when it
/// hurries.
void take_recording(Replay::Data& data, const std::optional<double>& host_ms) {
  data.launch_scale = 1;
  scale_launches(data, 1, data.measured_ms);
  if (host_ms) scale_launches(data, 0, *host_ms);
  data.played_ms = play(data, std::vector<float>(data.keys.size(), 1), std::vector<float>(data.groups.size(), 1));
}

double loader_floor(const Steps& steps, const LoaderPace& loader) {
  if (loader.loads_itself) return 0;
  if (loader.floor_ms > 0) return std::min(loader.floor_ms, steps.mean_ms());
  // Its workers were not seen. That it makes the host wait says that it gives no more than this.
  return steps.phase(HostPhase::data) > 0.05 * steps.mean_ms() ? steps.mean_ms() : 0;
}

bool can_be_played(const RecordedCauses& causes) {
  return std::ranges::any_of(causes.windows, [](const CausesWindow& window) {
    return !window.activities.empty() && !window.launches.empty();
  });
}

}  // namespace

Replay make_replay(const model::TrainingProcess& process, const Steps& steps, const GpuTime& time,
                   const RecordedCauses& causes, const Attribution& attribution, const LoaderPace& loader) {
  auto data = std::make_unique<Replay::Data>();
  data->measured_ms = steps.mean_ms();
  data->charges = attribution.charges;
  data->kernels = time.kernels;
  if (!time.known() || !can_be_played(causes)) return Replay(std::move(data));
  Builder builder(process, causes, *data);
  for (const auto& window : causes.windows) {
    if (data->operations.size() < kMostOperations) builder.add(window);
  }
  builder.finish();
  meet_times(steps, time, causes, *data);
  take_recording(*data, host_pace(steps));
  data->loader_floor_ms = loader_floor(steps, loader);
  data->busy_ms = std::min(time.busy_ms, data->measured_ms);
  return Replay(std::move(data));
}

}  // namespace fullwatt::explain
