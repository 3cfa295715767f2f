#include "fullwatt/record/recorder/schedule.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "fullwatt/record/recorder/recorder.h"

namespace fullwatt::record {
namespace {

constexpr std::uint64_t kGapSteps = 5;
constexpr std::uint64_t kEnoughCausesNs = 300'000'000;
constexpr unsigned kMostCauses = 6;

std::uint64_t sum_of_six(const std::uint64_t* values) {
  return std::accumulate(values, values + 6, std::uint64_t{0});
}

}  // namespace

void Schedule::pass_step(std::uint64_t now_ns) {
  ++step_;
  if (first_ns_ == 0) first_ns_ = now_ns;
  if (last_ns_ != 0) {
    std::ranges::rotate(recent_ns_, recent_ns_.begin() + 1);
    recent_ns_.back() = now_ns - last_ns_;
  }
  last_ns_ = now_ns;
}

std::uint64_t Schedule::quiet_steps() const {
  const bool waits = stage_ == Stage::pause || (stage_ == Stage::warm_up && !options_.windows);
  if (!waits || options_.enough_ns != 0 || step_ < kCountAtStep) return 1;
  if (options_.stop_after_steps == 0) return std::numeric_limits<std::uint64_t>::max();
  return options_.stop_after_steps > step_ ? options_.stop_after_steps - step_ : 1;
}

std::uint32_t Schedule::after_step(std::uint64_t now_ns, bool room) {
  pass_step(now_ns);
  const bool is_last = options_.stop_after_steps != 0 && step_ >= options_.stop_after_steps;
  auto actions = is_last && options_.ceiling ? ceiling_action(now_ns) : stage_action(now_ns, room);
  if (is_last && !options_.ceiling) actions |= FULLWATT_STOP;
  if (options_.enough_ns != 0 && step_ >= kEnoughSteps && now_ns - first_ns_ >= options_.enough_ns)
    actions |= FULLWATT_ENOUGH;
  if (!in_window() && actions == 0 && now_ns - measured_ns_ >= kMeasureNs) {
    measured_ns_ = now_ns;
    actions |= FULLWATT_MEASURE;
  }
  if (step_ == kCountAtStep) actions |= FULLWATT_COUNT;
  return actions;
}

void Schedule::window_lost() {
  if (stage_ == Stage::times) begin(Stage::gap, last_ns_);
  if (stage_ == Stage::causes) {
    begin(Stage::pause, last_ns_);
    causes_left_ = 0;
  }
}

void Schedule::postpone() {
  if (stage_ == Stage::times) stage_ = Stage::warm_up;
  if (stage_ == Stage::causes) begin(Stage::gap, last_ns_);
}

bool Schedule::in_window() const {
  return stage_ == Stage::times || stage_ == Stage::causes;
}

/// The last six steps took about as long as the six before.
bool Schedule::steady() const {
  const auto before = sum_of_six(recent_ns_.data());
  const auto after = sum_of_six(recent_ns_.data() + 6);
  const auto [low, high] = std::minmax(before, after);
  return low != 0 && high - low <= high / 5;
}

bool Schedule::window_over(std::uint64_t now_ns) const {
  const auto steps = step_ - stage_step_;
  return steps >= kWindowSteps || (steps >= 2 && now_ns - stage_ns_ >= kWindowNs);
}

std::uint32_t Schedule::begin(Stage stage, std::uint64_t now_ns) {
  stage_ = stage;
  stage_step_ = step_;
  stage_ns_ = now_ns;
  if (stage == Stage::times) return FULLWATT_OPEN_TIMES;
  if (stage == Stage::causes) return FULLWATT_OPEN_CAUSES;
  return stage == Stage::ceiling ? FULLWATT_CEILING : 0;
}

std::uint32_t Schedule::after_causes(std::uint64_t now_ns) {
  if (causes_left_ > 0) {
    --causes_left_;
    begin(Stage::gap, now_ns);
    return FULLWATT_CLOSE;
  }
  if (options_.ceiling && options_.stop_after_steps == 0) return FULLWATT_CLOSE | begin(Stage::ceiling, now_ns);
  begin(Stage::pause, now_ns);
  return FULLWATT_CLOSE;
}

void Schedule::begin_pair(std::uint64_t now_ns) {
  pair_ns_ = now_ns;
  pair_step_ = step_;
  plain_ns_ = std::accumulate(recent_ns_.begin(), recent_ns_.end(), std::uint64_t{0}) / recent_ns_.size();
}

/// In the first step after the pair, which paid for closing it. What costs much is done less often.
void Schedule::end_pair(std::uint64_t now_ns) {
  if (pair_step_ == 0) return;
  const auto plain = (step_ - pair_step_) * plain_ns_;
  const auto whole = now_ns - pair_ns_;
  const auto cost = whole > plain ? whole - plain : 0;
  pause_ns_ = std::clamp(cost * kPauseOfCost, pause_ns_, std::max(pause_ns_, kLongestPauseNs));
  pair_step_ = 0;
}

std::uint32_t Schedule::ceiling_action(std::uint64_t now_ns) {
  if (stage_ != Stage::ceiling) {
    const std::uint32_t close = in_window() ? FULLWATT_CLOSE : 0;
    return close | begin(Stage::ceiling, now_ns);
  }
  const auto steps = step_ - stage_step_;
  const auto since = now_ns - stage_ns_;
  const bool enough = steps >= kCeilingSteps && since >= kCeilingNs;
  const bool late = steps >= kLeastCeilingSteps && since >= kLongestCeilingNs;
  return enough || late ? FULLWATT_STOP : 0;
}

std::uint32_t Schedule::stage_action(std::uint64_t now_ns, bool room) {
  switch (stage_) {
    case Stage::warm_up: {
      const auto warm = now_ns - first_ns_;
      const bool ready = step_ > kWarmUpSteps && warm >= kWarmUpNs && steady();
      const bool soon_over = step_ > kWarmUpSteps && 3 * step_ >= options_.stop_after_steps;
      const bool late = step_ >= 3 && (warm >= kLongestWarmUpNs || (options_.stop_after_steps != 0 && soon_over));
      if (!options_.windows || !room || !(ready || late)) return 0;
      const auto window_ns = std::max<std::uint64_t>(1, kWindowSteps * sum_of_six(recent_ns_.data() + 6) / 6);
      causes_left_ = static_cast<unsigned>(std::min<std::uint64_t>(kMostCauses - 1, kEnoughCausesNs / window_ns));
      begin_pair(now_ns);
      return begin(Stage::times, now_ns);
    }
    case Stage::times:
      if (!window_over(now_ns) && room) return 0;
      begin(Stage::gap, now_ns);
      return FULLWATT_CLOSE;
    case Stage::gap:
      return room && step_ - stage_step_ >= kGapSteps ? begin(Stage::causes, now_ns) : 0;
    case Stage::causes:
      return window_over(now_ns) || !room ? after_causes(now_ns) : 0;
    case Stage::pause:
      end_pair(now_ns);
      if (!room || now_ns - stage_ns_ < pause_ns_) return 0;
      pause_ns_ *= 2;
      begin_pair(now_ns);
      return begin(Stage::times, now_ns);
    case Stage::ceiling:
      return ceiling_action(now_ns);
  }
  return 0;
}

}  // namespace fullwatt::record
