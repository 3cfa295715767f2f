#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "fullwatt/base/library.hpp"

/// This header knows nothing of torch.
namespace fullwatt::engine {

/// A training under `fullwatt run` tells its steps to that run's recorder, as the agent does in Python, so that they
/// stand in the run folder and are explained.
class RunRecording {
 public:
  /// What the host does in a step, by the numbers of fullwatt/record/format.hpp.
  enum class Phase { data = 0, backward = 1, optimizer = 2 };
  /// The value of a variable, or null, as `getenv` has it.
  using Environment = std::function<const char*(const char* name)>;

  /// The only one of the process, opened by the first call; null where it is not under `fullwatt run`. A GPU must not
  /// be asked for before: the driver would take the process for one without steps.
  static RunRecording* of_this_process(int rank);
  static std::unique_ptr<RunRecording> open(const Environment& environment, int rank);
  RunRecording(const RunRecording&) = delete;
  RunRecording& operator=(const RunRecording&) = delete;
  ~RunRecording();

  /// In nanoseconds of the recorder's clock.
  static std::uint64_t now_ns();
  /// What began at `start_ns` ends now.
  void phase(Phase phase, std::uint64_t start_ns);
  /// The step over so many samples ends now; its optimiser began at `start_ns`. Does what the recorder asks for.
  void step(std::uint64_t samples, std::uint64_t start_ns);
  /// As many steps were made as `fullwatt run --steps` asks for.
  bool wants_stop() const { return wants_stop_; }
  /// `fullwatt run --ceiling` measures what a perfect loader would give: the last batch is to come again and again, and
  /// what is trained with it is not to be kept.
  bool repeats_batch() const { return repeats_batch_; }

 private:
  struct Calls;

  RunRecording(base::Library library, std::unique_ptr<Calls> calls);

  base::Library library_;
  std::unique_ptr<Calls> calls_;
  bool wants_stop_ = false;
  bool repeats_batch_ = false;
};

}  // namespace fullwatt::engine
