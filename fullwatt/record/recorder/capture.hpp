#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "fullwatt/base/error.hpp"
#include "fullwatt/record/spool_writer.hpp"

namespace fullwatt::record {

/// Windows: CUPTI's records into the spool while one is open, nothing at all otherwise.
class Capture {
 public:
  explicit Capture(SpoolWriter& spool);

  /// Opens a window. Without CUPTI it is open too, for phases and line samples; the error says why there are no kernel
  /// times.
  base::Result<void> open(Window mode);
  void close();
  /// Gives CUPTI's seat to another profiler of this process, or takes it back. Tells whether an open window was lost.
  bool yield(bool yes, const std::string& to_whom);

  bool is_open() const { return mode_.load(std::memory_order_relaxed) != 0; }
  void phase(Phase phase, std::uint64_t start_ns, std::uint64_t length_ns, std::uint32_t site);
  void count_step() { ++steps_; }
  /// The StepFlag of the present moment.
  std::uint32_t step_flags() const;
  void begin_ceiling() { ceiling_ = true; }
  /// Whether the window in progress, or another one, finds room in the spool.
  bool has_room() const;

 private:
  base::Result<void> start_cupti(Window mode);
  void complain(const std::string& why);

  SpoolWriter& spool_;
  std::mutex mutex_;  ///< of open, close and yield
  std::atomic<int> mode_{0};
  bool recording_ = false;
  bool ceiling_ = false;
  std::string yielded_to_;
  std::string last_complaint_;
  std::uint64_t drained_ns_ = 0;  ///< when the GPU had done what was before the window
  std::uint64_t opened_ns_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t left_at_open_ = 0;
};

}  // namespace fullwatt::record
