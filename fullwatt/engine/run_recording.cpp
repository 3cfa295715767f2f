#include "fullwatt/engine/run_recording.hpp"

#include <cstdlib>
#include <ctime>

#include <unistd.h>

#include "fullwatt/record/recorder/recorder.h"

namespace fullwatt::engine {
namespace {

constexpr int kTrainer = 0;
constexpr int kTimes = 1, kCauses = 2;
constexpr std::uint32_t kOnlyOptimizer = 0;
constexpr std::uint32_t kNoSite = 0;

}  // namespace

/// The library's functions, which are not linked but found.
struct RunRecording::Calls {
  explicit Calls(const base::Library& library)
      : version(library.find<decltype(fullwatt_version)>("fullwatt_version")),
        open(library.find<decltype(fullwatt_open)>("fullwatt_open")),
        phase(library.find<decltype(fullwatt_phase)>("fullwatt_phase")),
        samples(library.find<decltype(fullwatt_samples)>("fullwatt_samples")),
        step(library.find<decltype(fullwatt_step)>("fullwatt_step")),
        open_window(library.find<decltype(fullwatt_window_open)>("fullwatt_window_open")),
        close_window(library.find<decltype(fullwatt_window_close)>("fullwatt_window_close")),
        close(library.find<decltype(fullwatt_close)>("fullwatt_close")) {}
  bool are_known() const {
    return version != nullptr && version() == FULLWATT_RECORDER_VERSION && open != nullptr && phase != nullptr &&
           samples != nullptr && step != nullptr && open_window != nullptr && close_window != nullptr &&
           close != nullptr;
  }

  decltype(&fullwatt_version) version;
  decltype(&fullwatt_open) open;
  decltype(&fullwatt_phase) phase;
  decltype(&fullwatt_samples) samples;
  decltype(&fullwatt_step) step;
  decltype(&fullwatt_window_open) open_window;
  decltype(&fullwatt_window_close) close_window;
  decltype(&fullwatt_close) close;
};

RunRecording::RunRecording(base::Library library, std::unique_ptr<Calls> calls)
    : library_(std::move(library)), calls_(std::move(calls)) {}

RunRecording::~RunRecording() {
  calls_->close();
}

std::unique_ptr<RunRecording> RunRecording::open(const Environment& environment, int rank) {
  const char* const folder = environment("FULLWATT_RUN");
  const char* const path = environment("FULLWATT_RECORDER");
  if (folder == nullptr || path == nullptr) return nullptr;
  auto library = base::Library::load(path);
  if (!library) return nullptr;  // `fullwatt run` tells that nothing was recorded
  auto calls = std::make_unique<Calls>(*library);
  if (!calls->are_known() || calls->open(folder, kTrainer, rank) != 0) return nullptr;
  return std::unique_ptr<RunRecording>(new RunRecording(*std::move(library), std::move(calls)));
}

RunRecording* RunRecording::of_this_process(int rank) {
  static const auto kOnly = [&] {
    auto opened = open([](const char* name) { return std::getenv(name); }, rank);
    if (opened) ::setenv("FULLWATT_AGENT", std::to_string(::getpid()).c_str(), 1);  // or the driver opens one, too
    return opened;
  }();
  return kOnly.get();
}

std::uint64_t RunRecording::now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

void RunRecording::phase(Phase phase, std::uint64_t start_ns) {
  calls_->phase(static_cast<int>(phase), start_ns, kNoSite);
}

void RunRecording::step(std::uint64_t samples, std::uint64_t start_ns) {
  calls_->samples(samples);
  const auto asked = calls_->step(kOnlyOptimizer, start_ns, kNoSite);
  if (asked == 0) return;
  if ((asked & FULLWATT_CLOSE) != 0) calls_->close_window();
  if ((asked & FULLWATT_OPEN_TIMES) != 0) calls_->open_window(kTimes);
  if ((asked & FULLWATT_OPEN_CAUSES) != 0) calls_->open_window(kCauses);
  wants_stop_ = wants_stop_ || (asked & FULLWATT_STOP) != 0;
  repeats_batch_ = repeats_batch_ || (asked & FULLWATT_CEILING) != 0;
}

}  // namespace fullwatt::engine
