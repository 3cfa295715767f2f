#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "fullwatt/explain/host_calls.hpp"
#include "fullwatt/explain/samples.hpp"
#include "fullwatt/explain/sites.hpp"
#include "fullwatt/explain/windows.hpp"

namespace fullwatt::explain {

/// Where a moment outside of the agent's phases stands in its step: which stretch between two phases, and which of the
/// stretch's calls comes next or is under way.
struct StepPlace {
  std::size_t stretch = 0;
  std::size_t call = 0;

  auto operator<=>(const StepPlace&) const = default;
};

/// The steps of one window laid out by phases and calls.
class StepLayout {
 public:
  StepLayout(const StepWindow& window, const std::vector<PhasePiece>& phases, const std::vector<HostCall>& calls);

  /// How many calls each stretch of a step has; steps of one shape do the same things in the same order.
  using Shape = std::vector<std::size_t>;
  const std::vector<Shape>& shapes() const { return shapes_; }
  /// The place of a moment, when its step has the shape.
  std::optional<StepPlace> place(std::uint64_t time, const Shape& shape) const;

 private:
  struct Stretch {
    Interval range;
    std::size_t step = 0;
    std::size_t number = 0;
    std::size_t first_call = 0;
    std::size_t last_call = 0;
  };
  std::vector<Stretch> stretches_;
  std::vector<Shape> shapes_;
  std::vector<std::uint64_t> call_ends_;
};

/// Training repeats itself. A line sample every millisecond says little about one step of a few milliseconds, but laid
/// over each other the steps of all windows tell for each call from which line it is made.
class LineVotes {
 public:
  LineVotes(const std::vector<StepLayout>& layouts, const std::vector<PhaseSamples>& samples, const Sites& sites);

  /// The stack that was seen most often at the place of a moment, or near it; nothing when its step is unlike the
  /// others.
  std::optional<std::uint32_t> stack(const StepLayout& layout, std::uint64_t time) const;

 private:
  void count(const StepLayout& layout, const PhaseSamples& samples, const Sites& sites);

  StepLayout::Shape shape_;
  struct Ballot {
    std::size_t votes = 0;
    std::uint32_t stack = 0;
  };
  std::map<StepPlace, std::map<std::uint32_t, Ballot>> votes_;  // by line
  std::map<StepPlace, std::uint32_t> elected_;                  // stack
};

}  // namespace fullwatt::explain
