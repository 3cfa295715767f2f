#pragma once

#include <c10/core/StreamGuard.h>

namespace fullwatt::engine {

/// A stream of a GPU for the training, this thread's current one as long as it lives: the default one cannot be
/// recorded into a graph. What the caller's stream was given before comes first, and what it is given later comes
/// after the training.
class TrainingStream {
 public:
  explicit TrainingStream(c10::Device device);
  TrainingStream(const TrainingStream&) = delete;
  TrainingStream& operator=(const TrainingStream&) = delete;
  ~TrainingStream();

 private:
  c10::Stream callers_;  ///< of the same GPU
  c10::StreamGuard on_own_;
};

}  // namespace fullwatt::engine
