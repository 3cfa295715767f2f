#include "fullwatt/explain/line_votes.hpp"

#include <algorithm>

namespace fullwatt::explain {
namespace {

/// A place without a vote takes that of a neighbour no further away than this.
constexpr std::size_t kNear = 4;

StepLayout::Shape commonest(const std::vector<StepLayout>& layouts) {
  std::map<StepLayout::Shape, std::size_t> counts;
  for (const auto& layout : layouts) {
    for (const auto& shape : layout.shapes()) ++counts[shape];
  }
  const auto most = std::ranges::max_element(counts, {}, [](const auto& item) { return item.second; });
  return most == counts.end() ? StepLayout::Shape{} : most->first;
}

}  // namespace

StepLayout::StepLayout(const StepWindow& window, const std::vector<PhasePiece>& phases,
                       const std::vector<HostCall>& calls) {
  shapes_.resize(window.boundaries.size() - 1);
  for (const auto& call : calls) call_ends_.push_back(call.range.end_ns);
  std::vector<Interval> steps;
  for (std::size_t i = 1; i < window.boundaries.size(); ++i) {
    steps.push_back({window.boundaries[i - 1], window.boundaries[i]});
  }
  for_each_overlap(phases, steps, [&](const PhasePiece& piece, const Interval& step, const Interval& common) {
    if (piece.phase != HostPhase::rest) return;
    const auto number = static_cast<std::size_t>(&step - steps.data());
    const auto first = std::ranges::upper_bound(call_ends_, common.start_ns) - call_ends_.begin();
    const auto last = std::ranges::upper_bound(call_ends_, common.end_ns) - call_ends_.begin();
    stretches_.push_back(
        {common, number, shapes_[number].size(), static_cast<std::size_t>(first), static_cast<std::size_t>(last)});
    shapes_[number].push_back(static_cast<std::size_t>(last - first));
  });
}

std::optional<StepPlace> StepLayout::place(std::uint64_t time, const Shape& shape) const {
  const auto after =
      std::ranges::upper_bound(stretches_, time, {}, [](const Stretch& stretch) { return stretch.range.start_ns; });
  if (after == stretches_.begin()) return std::nullopt;
  const auto& stretch = *std::prev(after);
  if (time >= stretch.range.end_ns || shapes_[stretch.step] != shape) return std::nullopt;
  const auto ends = call_ends_.begin();
  const auto next = std::upper_bound(ends + static_cast<std::ptrdiff_t>(stretch.first_call),
                                     ends + static_cast<std::ptrdiff_t>(stretch.last_call), time);
  return StepPlace{stretch.number, static_cast<std::size_t>(next - ends) - stretch.first_call};
}

LineVotes::LineVotes(const std::vector<StepLayout>& layouts, const std::vector<PhaseSamples>& samples,
                     const Sites& sites)
    : shape_(commonest(layouts)) {
  for (std::size_t i = 0; i < layouts.size(); ++i) count(layouts[i], samples[i], sites);
  for (const auto& [place, lines] : votes_) {
    const auto most = std::ranges::max_element(lines, {}, [](const auto& item) { return item.second.votes; });
    elected_[place] = most->second.stack;
  }
}

void LineVotes::count(const StepLayout& layout, const PhaseSamples& samples, const Sites& sites) {
  for (const auto& sample : samples.in(HostPhase::rest)) {
    const auto place = layout.place(sample.at_ns, shape_);
    if (!place) continue;
    auto& ballot = votes_[*place][sites.moment(sample.stack).line];
    ++ballot.votes;
    ballot.stack = sample.stack;
  }
}

std::optional<std::uint32_t> LineVotes::stack(const StepLayout& layout, std::uint64_t time) const {
  const auto place = layout.place(time, shape_);
  if (!place) return std::nullopt;
  for (std::size_t away = 0; away <= kNear; ++away) {
    for (const auto call : {place->call + away, place->call - std::min(away, place->call)}) {
      const auto found = elected_.find({place->stretch, call});
      if (found != elected_.end()) return found->second;
    }
  }
  return std::nullopt;
}

}  // namespace fullwatt::explain
