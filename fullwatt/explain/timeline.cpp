#include "fullwatt/explain/timeline.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "fullwatt/explain/causes.hpp"
#include "fullwatt/explain/samples.hpp"

namespace fullwatt::explain {
namespace {

/// Between two calls into CUDA that are no further apart than this the framework prepares the next launch: an eager
/// operator takes 5 to 40 µs from launch to launch, up to twice that while it is recorded.
constexpr std::uint64_t kLaunchPeriodNs = 100'000;
/// An asynchronous copy that takes longer than this waited for something.
constexpr std::uint64_t kBlockingCopyNs = 20'000;
/// PyTorch's blocking copy is an asynchronous one and a synchronisation right behind it.
constexpr std::uint64_t kSameOperationNs = 50'000;

constexpr std::uint8_t kToDevice = 1;
constexpr std::uint8_t kPageable = 1;

/// A call of the host thread, outermost only.
struct HostCall {
  Interval range;
  std::int32_t index = -1;
  Work work = Work::launch;
  bool blocks = false;
};

HostPhase phase_at(const std::vector<PhasePiece>& phases, std::uint64_t time) {
  const auto after =
      std::ranges::upper_bound(phases, time, {}, [](const PhasePiece& piece) { return piece.range.start_ns; });
  return after == phases.begin() ? HostPhase::rest : std::prev(after)->phase;
}

/// What the copies of a window were, by correlation.
std::unordered_map<std::uint64_t, const model::GpuActivity*> copies_of(const model::TrainingProcess& process,
                                                                       const Interval& range) {
  std::unordered_map<std::uint64_t, const model::GpuActivity*> copies;
  auto at = std::ranges::lower_bound(process.activities, range.start_ns, {}, &model::GpuActivity::start_ns);
  for (; at != process.activities.end() && at->start_ns < range.end_ns; ++at) {
    if (at->kind == model::GpuActivity::Kind::copy) copies[at->correlation] = &*at;
  }
  return copies;
}

class Calls {
 public:
  Calls(const model::TrainingProcess& process, const std::vector<PhasePiece>& phases, const Interval& range)
      : process_(process), copies_(copies_of(process, range)) {
    const auto thread = training_thread(process, phases, range);
    std::vector<std::int32_t> chosen;
    auto at = std::ranges::lower_bound(process.calls, range.start_ns, {}, &model::ApiCall::start_ns);
    for (; at != process.calls.end() && at->start_ns < range.end_ns; ++at) {
      if (at->thread != thread && phase_at(phases, at->start_ns) != HostPhase::backward) continue;
      chosen.push_back(static_cast<std::int32_t>(at - process.calls.begin()));
    }
    // Outer calls before those inside them.
    std::ranges::stable_sort(chosen, {}, [&](std::int32_t index) {
      const auto& call = process.calls[static_cast<std::size_t>(index)];
      return std::pair(call.start_ns, ~call.end_ns);
    });
    for (const auto index : chosen) add(process.calls[static_cast<std::size_t>(index)], index, range.end_ns);
  }
  std::vector<HostCall> take() { return std::move(calls_); }

 private:
  void add(const model::ApiCall& call, std::int32_t index, std::uint64_t limit) {
    auto made = judge(call, index);
    made.range.end_ns = std::min(made.range.end_ns, limit);
    if (!calls_.empty() && made.range.start_ns < calls_.back().range.end_ns) {
      auto& outer = calls_.back();
      // The driver's part of a runtime call, or another autograd thread at the same time.
      if (made.range.end_ns <= outer.range.end_ns) return refine(outer, made);
      made.range.start_ns = outer.range.end_ns;
    }
    if (made.range.length_ns() > 0) calls_.push_back(made);
  }

  /// The first launch of a kernel loads its module: the call inside says more than the one around it.
  static void refine(HostCall& outer, const HostCall& inner) {
    const bool plain = outer.work == Work::launch && !outer.blocks;
    const bool most = inner.range.length_ns() * 2 > outer.range.length_ns();
    if (plain && most && (inner.work != Work::launch || inner.blocks)) {
      outer.work = inner.work;
      outer.blocks = inner.blocks;
    }
  }

  HostCall judge(const model::ApiCall& call, std::int32_t index) const {
    HostCall made{{call.start_ns, std::max(call.end_ns, call.start_ns)}, index, Work::launch, false};
    switch (classify_call(process_.text(call.name))) {
      case CallCategory::sync:
        made.work = ends_copy_to_device(call) ? Work::copy_wait : Work::sync;
        made.blocks = true;
        break;
      case CallCategory::copy:
        judge_copy(call, made);
        break;
      case CallCategory::allocator:
        made.work = Work::allocator;
        break;
      case CallCategory::module_load:
        made.work = Work::module_load;
        break;
      case CallCategory::launch:
      case CallCategory::other:
        break;
    }
    return made;
  }

  void judge_copy(const model::ApiCall& call, HostCall& made) const {
    const auto* copy = copy_of(call);
    if (copy == nullptr || made.range.length_ns() <= kBlockingCopyNs) return;
    if (copy->source_kind != kPageable && copy->destination_kind != kPageable) return;
    made.work = copy->copy_kind == kToDevice ? Work::copy_wait : Work::sync;
    made.blocks = true;
  }

  const model::GpuActivity* copy_of(const model::ApiCall& call) const {
    const auto at = copies_.find(call.correlation);
    return at == copies_.end() ? nullptr : at->second;
  }

  /// A synchronisation that is a copy to the GPU itself (cudaMemcpy), or ends one that was just begun.
  bool ends_copy_to_device(const model::ApiCall& call) const {
    const auto* copy = copy_of(call);
    if (copy == nullptr && !calls_.empty() && call.start_ns < calls_.back().range.end_ns + kSameOperationNs) {
      copy = copy_of(process_.calls[static_cast<std::size_t>(calls_.back().index)]);
    }
    return copy != nullptr && copy->copy_kind == kToDevice;
  }

  const model::TrainingProcess& process_;
  std::unordered_map<std::uint64_t, const model::GpuActivity*> copies_;
  std::vector<HostCall> calls_;
};

/// The phases that are a cause by themselves.
std::optional<Work> work_of_phase(HostPhase phase) {
  switch (phase) {
    case HostPhase::data:
      return Work::data_wait;
    case HostPhase::save:
      return Work::checkpoint;
    case HostPhase::garbage:
      return Work::garbage;
    case HostPhase::evaluation:
      return Work::evaluation;
    case HostPhase::compile:
      return Work::compile;
    case HostPhase::agent:
      return Work::agent;
    case HostPhase::backward:
    case HostPhase::optimizer:
    case HostPhase::rest:
      break;
  }
  return std::nullopt;
}

class Timeline {
 public:
  Timeline(const model::TrainingProcess& process, const Sites& sites, const StepWindow& window)
      : sites_(sites),
        range_(window.range),
        phases_(phases_in(process, window.range)),
        samples_(process, phases_, window.range),
        calls_(Calls(process, phases_, window.range).take()) {}

  std::vector<HostSegment> build() {
    auto call = calls_.begin();
    for (const auto& piece : phases_) {
      auto cursor = piece.range.start_ns;
      while (call != calls_.end() && call->range.end_ns <= cursor) ++call;
      for (; call != calls_.end() && call->range.start_ns < piece.range.end_ns; ++call) {
        if (call->range.start_ns > cursor) between_calls(piece, {cursor, call->range.start_ns});
        const auto start = std::max(cursor, call->range.start_ns);
        cursor = std::min(call->range.end_ns, piece.range.end_ns);
        in_call(piece, *call, {start, cursor});
        if (call->range.end_ns > piece.range.end_ns) break;  // it goes on in the next phase
      }
      if (cursor < piece.range.end_ns) between_calls(piece, {cursor, piece.range.end_ns});
    }
    return std::move(segments_);
  }

 private:
  void push(const PhasePiece& piece, const Interval& range, Work work, std::uint32_t line, const HostCall* call) {
    if (range.length_ns() == 0) return;
    if (line == 0 && work == Work::python) work = Work::unexplained;
    segments_.push_back(
        {range, piece.phase, work, line, call == nullptr ? -1 : call->index, call != nullptr && call->blocks});
  }

  void in_call(const PhasePiece& piece, const HostCall& call, const Interval& range) {
    const auto own = work_of_phase(piece.phase);
    const auto line = call.blocks ? line_of_block(piece, call.range) : line_near(piece, range);
    push(piece, range, own.value_or(call.work), line, &call);
  }

  /// The gap between two calls that the range belongs to is short.
  bool launches_follow(const Interval& range) const {
    const auto after =
        std::ranges::lower_bound(calls_, range.end_ns, {}, [](const HostCall& c) { return c.range.start_ns; });
    const auto begin = after == calls_.begin() ? range_.start_ns : std::prev(after)->range.end_ns;
    const auto end = after == calls_.end() ? range_.end_ns : after->range.start_ns;
    return !calls_.empty() && end < begin + kLaunchPeriodNs;
  }

  void between_calls(const PhasePiece& piece, const Interval& range) {
    if (const auto own = work_of_phase(piece.phase)) return by_samples(piece, range, own);
    if (launches_follow(range)) return push(piece, range, Work::launch, line_near(piece, range), nullptr);
    by_samples(piece, range, std::nullopt);
  }

  /// Cuts a stretch halfway between its samples.
  void by_samples(const PhasePiece& piece, const Interval& range, std::optional<Work> work) {
    const auto& samples = samples_.in(piece.phase);
    auto at = std::ranges::lower_bound(samples, range.start_ns, {}, &model::LineSample::at_ns);
    auto cursor = range.start_ns;
    for (; at != samples.end() && at->at_ns < range.end_ns; ++at) {
      const auto next = std::next(at);
      const bool last = next == samples.end() || next->at_ns >= range.end_ns;
      const auto until = last ? range.end_ns : at->at_ns + (next->at_ns - at->at_ns) / 2;
      by_sample(piece, {cursor, until}, &*at, work);
      cursor = until;
    }
    if (cursor < range.end_ns) {
      by_sample(piece, {cursor, range.end_ns}, samples_.nearest(piece.phase, middle(range)), work);
    }
  }

  void by_sample(const PhasePiece& piece, const Interval& range, const model::LineSample* sample,
                 std::optional<Work> work) {
    if (sample == nullptr) return push(piece, range, work.value_or(Work::unexplained), own_line(piece), nullptr);
    const auto& moment = sites_.moment(sample->stack);
    const auto found = moment.running == Owner::torch ? Work::launch : Work::python;
    push(piece, range, work.value_or(found), line_of(piece, sample), nullptr);
  }

  static std::uint64_t middle(const Interval& range) { return range.start_ns + range.length_ns() / 2; }
  std::uint32_t own_line(const PhasePiece& piece) const { return sites_.line_of_text(piece.site); }

  /// Backward pass and optimiser have one line, that of the call; the loader's may run through the user's data set.
  std::uint32_t line_of(const PhasePiece& piece, const model::LineSample* sample) const {
    const bool called = piece.phase == HostPhase::backward || piece.phase == HostPhase::optimizer;
    if (called && own_line(piece) != 0) return own_line(piece);
    const auto line = sample == nullptr ? 0 : sites_.moment(sample->stack).line;
    return line != 0 ? line : own_line(piece);
  }
  std::uint32_t line_near(const PhasePiece& piece, const Interval& range) const {
    return line_of(piece, samples_.nearest(piece.phase, middle(range)));
  }
  /// Of a blocking call: a sample taken in it, else the next one after it, else the nearest.
  std::uint32_t line_of_block(const PhasePiece& piece, const Interval& call) const {
    const auto* next = samples_.next(piece.phase, call.start_ns);
    return line_of(piece, next != nullptr ? next : samples_.nearest(piece.phase, call.start_ns));
  }

  const Sites& sites_;
  Interval range_;
  std::vector<PhasePiece> phases_;
  PhaseSamples samples_;
  std::vector<HostCall> calls_;
  std::vector<HostSegment> segments_;
};

}  // namespace

std::string_view cause_of(Work work) {
  switch (work) {
    case Work::data_wait:
      return cause::kDataWait;
    case Work::sync:
      return cause::kSyncDrain;
    case Work::copy_wait:
      return cause::kCopyWait;
    case Work::allocator:
      return cause::kAllocator;
    case Work::launch:
      return cause::kLaunchBound;
    case Work::module_load:
      return cause::kModuleLoad;
    case Work::python:
      return cause::kPython;
    case Work::garbage:
      return cause::kGarbage;
    case Work::compile:
      return cause::kCompile;
    case Work::checkpoint:
      return cause::kCheckpoint;
    case Work::evaluation:
      return cause::kEvaluation;
    case Work::agent:
    case Work::unexplained:
      break;
  }
  return cause::kUnexplained;
}

double own_ms(const HostSegment& segment) {
  constexpr std::uint64_t kLongestLaunchNs = 200'000;
  constexpr double kUsualLaunchMs = 0.01;
  const bool full_queue =
      segment.call >= 0 && segment.work == Work::launch && segment.range.length_ns() > kLongestLaunchNs;
  return full_queue ? kUsualLaunchMs : static_cast<double>(segment.range.length_ns()) / 1e6;
}

std::uint64_t training_thread(const model::TrainingProcess& process, const std::vector<PhasePiece>& phases,
                              const Interval& range) {
  std::map<std::uint64_t, std::size_t> calls;
  auto at = std::ranges::lower_bound(process.calls, range.start_ns, {}, &model::ApiCall::start_ns);
  for (; at != process.calls.end() && at->start_ns < range.end_ns; ++at) {
    if (phase_at(phases, at->start_ns) != HostPhase::backward) ++calls[at->thread];
  }
  const auto main = static_cast<std::uint64_t>(process.pid);
  if (calls.contains(main)) return main;
  const auto most = std::ranges::max_element(calls, {}, [](const auto& item) { return item.second; });
  return most == calls.end() ? main : most->first;
}

std::vector<HostSegment> host_timeline(const model::TrainingProcess& process, const Sites& sites,
                                       const StepWindow& window) {
  return Timeline(process, sites, window).build();
}

}  // namespace fullwatt::explain
