#include "fullwatt/record/recorder/capture.hpp"

#include "fullwatt/vendor/cupti/cupti.hpp"

namespace fullwatt::record {
namespace {

using vendor::cupti::Activity;

/// Room that is kept for marks, losses and memory figures when windows have taken the rest.
constexpr std::uint64_t kReserve = 20'000;
/// No window takes more than this part of what is left, so that later ones still find room.
constexpr std::uint64_t kLargestPart = 3;

/// CUPTI's callbacks carry no pointer of ours.
SpoolWriter* sink_spool = nullptr;

Kind kind_of(Activity::Kind kind) {
  switch (kind) {
    case Activity::Kind::kernel:
      return Kind::kernel;
    case Activity::Kind::copy:
      return Kind::copy;
    case Activity::Kind::fill:
      return Kind::fill;
    case Activity::Kind::call:
      return Kind::call;
  }
  return Kind::empty;
}

/// CUPTI names calls with the version they came with: cuMemcpyHtoDAsync_v2.
std::string_view without_version(std::string_view name) {
  for (const std::string_view mark : {"_ptsz", "_ptds", "_v"}) {
    const auto at = name.rfind(mark);
    const bool version = mark != "_v" || name.find_first_not_of("0123456789", at + 2) == std::string_view::npos;
    if (at != std::string_view::npos && version) name = name.substr(0, at);
  }
  return name;
}

void write(const Activity& activity) {
  Record record{};
  record.kind = kind_of(activity.kind);
  record.start_ns = activity.start_ns;
  record.duration_ns = activity.end_ns - activity.start_ns;
  record.a = activity.correlation;
  record.thread = static_cast<std::uint16_t>(activity.device);
  switch (activity.kind) {
    case Activity::Kind::kernel:
      record.id = sink_spool->text(activity.name);
      record.b = activity.stream;
      record.c = activity.blocks;
      record.d = activity.threads;
      break;
    case Activity::Kind::copy:
      record.b = activity.bytes;
      record.c = activity.stream;
      record.d = activity.copy_kind | static_cast<std::uint32_t>(activity.source_kind) << 8U |
                 static_cast<std::uint32_t>(activity.destination_kind) << 16U;
      break;
    case Activity::Kind::fill:
      record.b = activity.bytes;
      record.c = activity.stream;
      break;
    case Activity::Kind::call:
      record.id = sink_spool->text(without_version(activity.name));
      record.b = activity.thread;
      record.thread = 0;
      break;
  }
  sink_spool->append(record);
}

}  // namespace

Capture::Capture(SpoolWriter& spool) : spool_(spool) {}

base::Result<void> Capture::open(Window mode) {
  const std::lock_guard lock(mutex_);
  if (is_open()) return {};
  left_at_open_ = spool_.records_left();
  steps_ = 0;
  drained_ns_ = now_ns();
  const auto started = start_cupti(mode);
  recording_ = started.has_value();
  // A training on the CPU has no kernels to miss.
  if (!started && vendor::cupti::cuda_in_use()) complain(started.error().message);
  opened_ns_ = now_ns();
  spool_.header().state = mode == Window::times ? State::in_times : State::in_causes;
  mode_ = static_cast<int>(mode);
  return started;
}

base::Result<void> Capture::start_cupti(Window mode) {
  if (!yielded_to_.empty())
    return base::fail(base::Error::Kind::unavailable,
                      yielded_to_ + " is recording in this process and has CUPTI's only seat");
  if (!vendor::cupti::cuda_in_use())
    return base::fail(base::Error::Kind::unavailable, "CUDA is not in use in this process");
  sink_spool = &spool_;
  vendor::cupti::drain();
  drained_ns_ = now_ns();
  return vendor::cupti::start(mode == Window::causes, write);
}

void Capture::close() {
  const std::lock_guard lock(mutex_);
  if (!is_open()) return;
  Record record{};
  record.kind = Kind::window;
  record.flags = static_cast<std::uint8_t>(mode_.load());
  record.start_ns = opened_ns_;
  record.duration_ns = now_ns() - opened_ns_;
  record.a = steps_;
  mode_ = 0;
  if (recording_) vendor::cupti::stop();
  record.b = recording_ ? vendor::cupti::dropped() : 0;
  record.c = recording_ ? 1 : 0;
  record.d = static_cast<std::uint32_t>((opened_ns_ - drained_ns_) / 1000);
  recording_ = false;
  spool_.append(record);
  spool_.header().windows.fetch_add(1);
  spool_.header().state = State::watching;
}

bool Capture::yield(bool yes, const std::string& to_whom) {
  bool lost = false;
  if (yes && is_open()) {
    close();
    complain("a window was given up: " + to_whom + " started to record in this process");
    lost = true;
  }
  const std::lock_guard lock(mutex_);
  yielded_to_ = yes ? to_whom : "";
  return lost;
}

void Capture::phase(Phase phase, std::uint64_t start_ns, std::uint64_t length_ns, std::uint32_t site) {
  Record record{};
  record.kind = Kind::phase;
  record.flags = static_cast<std::uint8_t>(phase);
  record.id = site;
  record.start_ns = start_ns;
  record.duration_ns = length_ns;
  spool_.append(record);
}

std::uint32_t Capture::step_flags() const {
  const auto mode = mode_.load(std::memory_order_relaxed);
  const auto window = mode == static_cast<int>(Window::times) ? kInTimes : mode != 0 ? kInCauses : 0;
  return static_cast<std::uint32_t>(window) | (ceiling_ ? static_cast<std::uint32_t>(kCeiling) : 0U);
}

bool Capture::has_room() const {
  const auto left = spool_.records_left();
  if (left < kReserve) return false;
  return !is_open() || left_at_open_ - left < left_at_open_ / kLargestPart;
}

void Capture::complain(const std::string& why) {
  if (why == last_complaint_) return;
  last_complaint_ = why;
  spool_.say(Kind::trouble, why);
}

}  // namespace fullwatt::record
