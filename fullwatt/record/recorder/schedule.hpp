#pragma once

#include <array>
#include <cstdint>

#include "fullwatt/record/format.hpp"

namespace fullwatt::record {

/// What the schedule is told; all of it can be given by a test.
struct ScheduleOptions {
  bool windows = true;
  std::uint64_t stop_after_steps = 0;  ///< 0: never
  std::uint64_t enough_ns = 0;         ///< of long steps: kEnoughSteps do once they have taken so long; 0: never
  bool ceiling = false;  ///< measure with cached batches after these steps, or the first windows, then stop
};

/// Decides, from the steps alone, when windows open and close and when slow things are read. Windows come in pairs:
/// times, then causes; the first pair once the steps are steady, the next ones ever further apart, so that recording
/// costs little of any run. Steps in windows are few: at most kWindowSteps, fewer when they are long.
class Schedule {
 public:
  static constexpr std::uint64_t kWindowSteps = 20;
  static constexpr std::uint64_t kWindowNs =
      1'500'000'000;  ///< a window of long steps ends after this, with two steps at least
  static constexpr std::uint64_t kWarmUpSteps = 12;
  static constexpr std::uint64_t kWarmUpNs = 1'000'000'000;
  static constexpr std::uint64_t kLongestWarmUpNs = 15'000'000'000;
  static constexpr std::uint64_t kPauseNs = 45'000'000'000;  ///< after the first pair; doubles each time
  static constexpr std::uint64_t kPauseOfCost = 200;         ///< a pause lasts this many times what the pair cost
  static constexpr std::uint64_t kLongestPauseNs = 1'800'000'000'000;  ///< an evaluation in a pair looks like its cost
  static constexpr std::uint64_t kMeasureNs = 1'000'000'000;
  static constexpr std::uint64_t kCountAtStep = 6;
  static constexpr std::uint64_t kEnoughSteps = 16;
  static constexpr std::uint64_t kCeilingSteps = 40;
  static constexpr std::uint64_t kCeilingNs = 2'000'000'000;  ///< workers fill their queues first
  static constexpr std::uint64_t kLeastCeilingSteps = 6;      ///< of long ones
  static constexpr std::uint64_t kLongestCeilingNs = 10'000'000'000;

  explicit Schedule(const ScheduleOptions& options) : options_(options) {}

  /// After the step that ended at `now_ns`. `room` tells whether the spool can take another window. Returns the sum of
  /// the FULLWATT_… actions of recorder.h.
  std::uint32_t after_step(std::uint64_t now_ns, bool room);
  /// A step that nothing is to follow.
  void pass_step(std::uint64_t now_ns);
  /// How many steps may end before it has to be asked again; at least the next one.
  std::uint64_t quiet_steps() const;
  /// The window that was asked for could not be opened now: ask again a few steps later.
  void postpone();
  /// The window could not be opened, or was taken away: go on as if it were over.
  void window_lost();

 private:
  enum class Stage { warm_up, times, gap, causes, pause, ceiling };

  bool steady() const;
  bool in_window() const;
  bool window_over(std::uint64_t now_ns) const;
  std::uint32_t begin(Stage stage, std::uint64_t now_ns);
  std::uint32_t after_causes(std::uint64_t now_ns);
  std::uint32_t ceiling_action(std::uint64_t now_ns);
  std::uint32_t stage_action(std::uint64_t now_ns, bool room);
  void begin_pair(std::uint64_t now_ns);
  void end_pair(std::uint64_t now_ns);

  ScheduleOptions options_;
  Stage stage_ = Stage::warm_up;
  std::uint64_t step_ = 0;
  std::uint64_t first_ns_ = 0;
  std::uint64_t last_ns_ = 0;
  std::uint64_t measured_ns_ = 0;
  std::uint64_t stage_step_ = 0;
  std::uint64_t stage_ns_ = 0;
  std::uint64_t pause_ns_ = kPauseNs;
  std::uint64_t pair_ns_ = 0;    ///< when the last pair began
  std::uint64_t pair_step_ = 0;  ///< 0 once it is over and its cost is known
  std::uint64_t plain_ns_ = 0;   ///< a step before it
  unsigned causes_left_ = 0;     ///< short steps get several windows of causes, or there would be too few samples
  std::array<std::uint64_t, 12> recent_ns_{};  ///< halves of six: cycles of two or three optimisers fit into them
};

}  // namespace fullwatt::record
