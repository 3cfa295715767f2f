#pragma once

#include "fullwatt/engine/step.hpp"

namespace fullwatt::engine {

/// A whole step of the training (conversion, forward, loss, backward, clipping, optimiser) recorded once and replayed
/// by one call, where the device can do that.
class StepGraph {
 public:
  /// Records on the current stream, which must not be the default one. Weights, the optimiser's state and random
  /// numbers are then what they were. The error says why it cannot be recorded.
  static base::Result<std::unique_ptr<StepGraph>> record(Step& step, const Fields& example);

  StepGraph() = default;
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;
  virtual ~StepGraph() = default;

  /// One step over a batch of the example's shapes.
  virtual void run(const Fields& batch) = 0;
};

}  // namespace fullwatt::engine
