#include "fullwatt/cli/run_watch.hpp"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "fullwatt/cli/run_report.hpp"
#include "fullwatt/record/hang.hpp"
#include "fullwatt/record/run_folder.hpp"
#include "fullwatt/record/sampler.hpp"
#include "fullwatt/record/spool_reader.hpp"
#include "fullwatt/record/spool_writer.hpp"

namespace fullwatt::cli {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kTick = 250ms;
constexpr auto kLineTick = 1000ms;

/// What is known of the answer so far.
struct Verdict {
  std::string cause;
  double cause_ms = 0;
  std::optional<double> busy;
};

/// Explains the run while it goes on, on a thread of its own, each time windows were closed.
class Explainer {
 public:
  explicit Explainer(std::string folder) : shared_(std::make_shared<Shared>()) { shared_->folder = std::move(folder); }

  void windows_closed(std::uint32_t count) {
    const std::lock_guard lock(shared_->mutex);
    if (count < 2 || count == shared_->seen || shared_->busy) return;
    shared_->seen = count;
    shared_->busy = true;
    std::thread([shared = shared_] { explain(*shared); }).detach();
  }
  std::optional<Verdict> verdict() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->verdict;
  }

 private:
  struct Shared {
    std::string folder;
    mutable std::mutex mutex;
    std::optional<Verdict> verdict;
    std::uint32_t seen = 0;
    bool busy = false;
  };

  static void explain(Shared& shared) {
    const auto explained = explain_folder(shared.folder);
    const std::lock_guard lock(shared.mutex);
    shared.busy = false;
    if (!explained || explained->explanation.causes.empty()) return;
    const auto& found = explained->explanation;
    const auto idle = std::ranges::find_if(found.causes, [](const auto& cause) { return !cause.gpu_busy; });
    const auto& top = idle != found.causes.end() ? *idle : found.causes.front();
    shared.verdict = Verdict{top.id, top.charged_ms, std::nullopt};
    if (found.gpu_busy_ms && found.step_ms.mean > 0) shared.verdict->busy = *found.gpu_busy_ms / found.step_ms.mean;
  }

  std::shared_ptr<Shared> shared_;
};

/// The trainer that is furthest; ranks keep step with each other.
std::optional<record::Progress> progress_of(const std::string& folder) {
  std::optional<record::Progress> best;
  for (const auto& path : record::spools(folder)) {
    const auto progress = record::read_progress(path);
    if (!progress || progress->role == model::TrainingProcess::Role::worker) continue;
    if (!best || progress->steps > best->steps) best = *progress;
  }
  return best;
}

class LiveDisplay {
 public:
  LiveDisplay(const WatchOptions& options, Clock::time_point started) : options_(options), started_(started) {}

  void draw(const std::optional<record::Progress>& progress, const record::Sampler::Status& sampled,
            const std::optional<Verdict>& verdict) {
    if (!options_.live) return;
    show::LiveStatus status;
    status.language = options_.language;
    status.elapsed_s = std::chrono::duration<double>(Clock::now() - started_).count();
    if (progress && progress->steps > 0) {
      status.step = progress->steps;
      if (progress->recent_step_ns > 0) status.step_ms = static_cast<double>(progress->recent_step_ns) / 1e6;
      if (status.step_ms && progress->samples > 0) {
        const double per_step = static_cast<double>(progress->samples) / static_cast<double>(progress->steps);
        status.samples_per_second = per_step * 1000 / *status.step_ms;
      }
    }
    if (sampled.newest_gpu && sampled.newest_gpu->power_w) status.power_w = *sampled.newest_gpu->power_w;
    if (verdict) {
      status.top_cause = verdict->cause;
      status.top_cause_ms = verdict->cause_ms;
      status.gpu_busy = verdict->busy;
    } else if (sampled.newest_gpu && sampled.newest_gpu->utilization_percent) {
      status.gpu_busy = *sampled.newest_gpu->utilization_percent / 100.0;
    }
    // The cursor goes back to the start: what the program prints next replaces the line.
    fmt::print(stderr, "\r\033[K{}\r", show::live_line(status, options_.columns - 1, options_.ascii));
    std::fflush(stderr);
    drawn_ = true;
  }
  void clear() const {
    if (drawn_) fmt::print(stderr, "\r\033[K");
  }

 private:
  const WatchOptions& options_;
  Clock::time_point started_;
  bool drawn_ = false;
};

std::string report_hang(const WatchOptions& options, const record::Progress& progress, const std::vector<int>& tree) {
  base::RealFiles files;
  const double silent = static_cast<double>(record::now_ns() - progress.last_step_ns) / 1e9;
  const auto headline =
      fmt::format("No step for {:.0f} s after step {}; a step takes {:.3g} s. The training was not ended.", silent,
                  progress.steps, static_cast<double>(progress.recent_step_ns) / 1e9);
  const auto path = record::write_hang_report(files, options.folder, tree, headline);
  fmt::print(stderr, "{}fullwatt: {} The stacks of its processes: {}\n", options.live ? "\r\033[K" : "", headline,
             path);
  return path;
}

}  // namespace

Watched watch(record::Training& training, const WatchOptions& options) {
  const auto started = Clock::now();
  record::Sampler sampler(training.pid(), (std::filesystem::path(options.folder) / "samples.fw").string());
  Explainer explainer(options.folder);
  LiveDisplay display(options, started);
  record::HangWatch hang_watch;
  Watched watched;
  auto line_at = started;
  std::optional<record::Exit> exit;
  while (!exit) {
    exit = training.wait(kTick);
    if (exit || Clock::now() - line_at < kLineTick) continue;
    line_at = Clock::now();
    const auto progress = progress_of(options.folder);
    const auto sampled = sampler.status();
    if (progress) {
      explainer.windows_closed(progress->windows);
      if (hang_watch.hangs(record::now_ns(), progress->steps, progress->last_step_ns, progress->recent_step_ns))
        watched.hang = report_hang(options, *progress, sampled.tree);
    }
    display.draw(progress, sampled, explainer.verdict());
  }
  display.clear();
  sampler.stop();
  watched.exit = *exit;
  watched.interrupted = training.interrupted();
  watched.seconds = std::chrono::duration<double>(Clock::now() - started).count();
  const auto sampled = sampler.status();
  watched.gpus = sampled.gpus;
  watched.no_gpu_samples = sampled.reason;
  return watched;
}

}  // namespace fullwatt::cli
