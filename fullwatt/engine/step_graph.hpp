#pragma once

#include "fullwatt/engine/step.hpp"

namespace fullwatt::engine {

/// A whole step of the training (conversion, forward, loss, backward of all its batches, clipping, optimiser) recorded
/// once and replayed by one call, where the device can do that.
class StepGraph {
 public:
  /// A graph holds the kernels of every batch of a step; with more of them it grows large.
  static constexpr std::uint64_t kMostParts = 16;

  /// Records a step of so many batches on the current stream, which must not be the default one. Weights, the
  /// optimiser's state and random numbers are then what they were. The error says why it cannot be recorded.
  static base::Result<std::unique_ptr<StepGraph>> record(Step& step, const Fields& example, std::uint64_t parts);

  /// Whether the calling thread records one: what it asks the GPU for is noted, not computed.
  static bool is_recording();

  StepGraph() = default;
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;
  virtual ~StepGraph() = default;

  /// Copies one of the step's batches, of the example's shapes, to where the graph reads it.
  virtual void put(std::uint64_t part, const Fields& batch) = 0;
  /// One step over all of them.
  virtual void run() = 0;
};

}  // namespace fullwatt::engine
