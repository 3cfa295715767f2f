#include "fullwatt/explain/timeline.hpp"

#include <algorithm>
#include <optional>

#include "fullwatt/explain/causes.hpp"
#include "fullwatt/explain/line_votes.hpp"
#include "fullwatt/explain/samples.hpp"

namespace fullwatt::explain {
namespace {

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

/// How far apart calls may be while launches follow each other: an eager operator takes 5 to 40 µs from launch to
/// launch, more on a slow host and while it is recorded.
std::uint64_t launch_period(const std::vector<HostCall>& calls) {
  constexpr std::uint64_t kShortestNs = 100'000;
  constexpr std::uint64_t kLongestNs = 500'000;
  std::vector<std::uint64_t> gaps;
  for (std::size_t i = 1; i < calls.size(); ++i) {
    gaps.push_back(calls[i].range.start_ns - calls[i - 1].range.end_ns);
  }
  if (gaps.empty()) return kShortestNs;
  const auto middle = gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2);
  std::ranges::nth_element(gaps, middle);
  return std::clamp(4 * *middle, kShortestNs, kLongestNs);
}

/// What is read of a window before its segments are cut.
struct WindowParts {
  WindowParts(const model::TrainingProcess& process, const StepWindow& window)
      : range(window.range),
        phases(phases_in(process, window.range)),
        samples(process, phases, window.range),
        calls(host_calls(process, phases, window.range)),
        period_ns(launch_period(calls)) {}

  Interval range;
  std::vector<PhasePiece> phases;
  PhaseSamples samples;
  std::vector<HostCall> calls;
  std::uint64_t period_ns;
};

class Timeline {
 public:
  Timeline(const WindowParts& parts, const Sites& sites, const StepLayout& layout, const LineVotes& votes)
      : parts_(parts), sites_(sites), layout_(layout), votes_(votes) {}

  std::vector<HostSegment> build() {
    auto call = parts_.calls.begin();
    const auto end = parts_.calls.end();
    for (const auto& piece : parts_.phases) {
      auto cursor = piece.range.start_ns;
      while (call != end && call->range.end_ns <= cursor) ++call;
      for (; call != end && call->range.start_ns < piece.range.end_ns; ++call) {
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
    const auto& calls = parts_.calls;
    const auto after =
        std::ranges::lower_bound(calls, range.end_ns, {}, [](const HostCall& c) { return c.range.start_ns; });
    const auto begin = after == calls.begin() ? parts_.range.start_ns : std::prev(after)->range.end_ns;
    const auto end = after == calls.end() ? parts_.range.end_ns : after->range.start_ns;
    return !calls.empty() && end < begin + parts_.period_ns;
  }

  void between_calls(const PhasePiece& piece, const Interval& range) {
    if (const auto own = work_of_phase(piece.phase)) return by_samples(piece, range, own);
    if (launches_follow(range)) return push(piece, range, Work::launch, line_near(piece, range), nullptr);
    by_samples(piece, range, std::nullopt);
  }

  /// Cuts a stretch halfway between its samples.
  void by_samples(const PhasePiece& piece, const Interval& range, std::optional<Work> work) {
    const auto& samples = parts_.samples.in(piece.phase);
    auto at = std::ranges::lower_bound(samples, range.start_ns, {}, &model::LineSample::at_ns);
    auto cursor = range.start_ns;
    for (; at != samples.end() && at->at_ns < range.end_ns; ++at) {
      const auto next = std::next(at);
      const bool last = next == samples.end() || next->at_ns >= range.end_ns;
      const auto until = last ? range.end_ns : at->at_ns + (next->at_ns - at->at_ns) / 2;
      by_stack(piece, {cursor, until}, at->stack, work);
      cursor = until;
    }
    if (cursor < range.end_ns) by_stack(piece, {cursor, range.end_ns}, stack_near(piece, middle(range)), work);
  }

  void by_stack(const PhasePiece& piece, const Interval& range, std::optional<std::uint32_t> stack,
                std::optional<Work> work) {
    if (!stack) return push(piece, range, work.value_or(Work::unexplained), own_line(piece), nullptr);
    const auto& moment = sites_.moment(*stack);
    // Without calls to see, what a model's own code does is computing: its operators leave no frame.
    const bool computes = moment.running == Owner::torch || (parts_.calls.empty() && moment.in_module);
    push(piece, range, work.value_or(computes ? Work::launch : Work::python), line_of(piece, stack), nullptr);
  }

  static std::uint64_t middle(const Interval& range) { return range.start_ns + range.length_ns() / 2; }
  std::uint32_t own_line(const PhasePiece& piece) const {
    if (piece.phase == HostPhase::rest) return 0;
    return sites_.line_of_phase(static_cast<model::Phase>(piece.phase), piece.site);
  }

  /// Backward pass and optimiser have one line, that of the call; the loader's may run through the user's data set.
  std::uint32_t line_of(const PhasePiece& piece, std::optional<std::uint32_t> stack) const {
    const bool called = piece.phase == HostPhase::backward || piece.phase == HostPhase::optimizer;
    if (called && own_line(piece) != 0) return own_line(piece);
    const auto line = stack ? sites_.moment(*stack).line : 0;
    return line != 0 ? line : own_line(piece);
  }

  /// As the steps laid over each other have it; in a step unlike the others, the nearest sample of the phase.
  std::optional<std::uint32_t> stack_near(const PhasePiece& piece, std::uint64_t time) const {
    if (piece.phase == HostPhase::rest) {
      if (const auto elected = votes_.stack(layout_, time)) return elected;
    }
    const auto* sample = parts_.samples.nearest(piece.phase, time);
    return sample == nullptr ? std::nullopt : std::optional(sample->stack);
  }
  std::uint32_t line_near(const PhasePiece& piece, const Interval& range) const {
    return line_of(piece, stack_near(piece, middle(range)));
  }

  /// Of a blocking call: a sample taken in it, else as the other steps have it, else the next sample after it.
  std::uint32_t line_of_block(const PhasePiece& piece, const Interval& call) const {
    const auto* next = parts_.samples.next(piece.phase, call.start_ns);
    if (next != nullptr && next->at_ns < call.end_ns) return line_of(piece, next->stack);
    if (piece.phase == HostPhase::rest) {
      if (const auto elected = votes_.stack(layout_, middle(call))) return line_of(piece, elected);
    }
    return next != nullptr ? line_of(piece, next->stack) : line_near(piece, call);
  }

  const WindowParts& parts_;
  const Sites& sites_;
  const StepLayout& layout_;
  const LineVotes& votes_;
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

std::vector<std::vector<HostSegment>> host_timelines(const model::TrainingProcess& process, const Sites& sites,
                                                     const std::vector<StepWindow>& windows) {
  std::vector<WindowParts> parts;
  std::vector<StepLayout> layouts;
  std::vector<PhaseSamples> samples;
  for (const auto& window : windows) {
    parts.emplace_back(process, window);
    layouts.emplace_back(window, parts.back().phases, parts.back().calls);
    samples.push_back(parts.back().samples);
  }
  const LineVotes votes(layouts, samples, sites);
  std::vector<std::vector<HostSegment>> timelines;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    timelines.push_back(Timeline(parts[i], sites, layouts[i], votes).build());
  }
  return timelines;
}

}  // namespace fullwatt::explain
