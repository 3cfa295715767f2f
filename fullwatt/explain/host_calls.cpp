#include "fullwatt/explain/host_calls.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "fullwatt/explain/calls.hpp"

namespace fullwatt::explain {
namespace {

/// An asynchronous copy that takes longer than this waited for something.
constexpr std::uint64_t kBlockingCopyNs = 20'000;
/// PyTorch's blocking copy is an asynchronous one and a synchronisation right behind it.
constexpr std::uint64_t kSameOperationNs = 50'000;

constexpr std::uint8_t kToDevice = 1;
constexpr std::uint8_t kPageable = 1;

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

}  // namespace

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

std::vector<HostCall> host_calls(const model::TrainingProcess& process, const std::vector<PhasePiece>& phases,
                                 const Interval& range) {
  return Calls(process, phases, range).take();
}

}  // namespace fullwatt::explain
