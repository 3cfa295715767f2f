#include "fullwatt/show/perfetto_process.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::show {
namespace {

using model::GpuActivity;
using model::TrainingProcess;
using Track = TraceWriter::Track;

/// Numbers for the GPU's side of a process; real process ids are below 4,194,304.
constexpr std::uint64_t kGpuLanes = 1'000'000'000;
constexpr std::uint64_t kLanesPerProcess = 1000;

enum Lane : std::uint64_t { kSteps = 1, kWindows, kPhases, kLines, kFetches = 10, kCalls = 1000 };

std::string_view copy_name(const GpuActivity& activity) {
  if (activity.kind == GpuActivity::Kind::fill) return "\"fill\"";
  switch (activity.copy_kind) {
    case 1:
      return "\"copy to the GPU\"";
    case 2:
      return "\"copy from the GPU\"";
    case 8:
      return "\"copy inside the GPU\"";
    case 10:
      return "\"copy between GPUs\"";
    default:
      return "\"copy\"";
  }
}

class ProcessTrace {
 public:
  ProcessTrace(TraceWriter& writer, const TrainingProcess& process, std::size_t number)
      : writer_(writer),
        process_(process),
        pid_(static_cast<std::uint64_t>(std::max(0, process.pid))),
        number_(number) {
    for (const auto& text : process.texts) names_.push_back(quoted(text));
  }

  void write() {
    name();
    steps();
    windows();
    phases();
    lines();
    fetches();
    calls();
    activities();
    figures();
  }

 private:
  std::string_view text(std::uint32_t id) const { return id < names_.size() ? names_[id] : std::string_view("\"\""); }

  void name() {
    auto title = fmt::format("{} {}", to_string(process_.role), process_.pid);
    if (process_.rank >= 0) title += fmt::format(", rank {}", process_.rank);
    writer_.process(pid_, quoted(title), static_cast<int>(number_) * 2);
  }

  void steps() {
    if (process_.steps.size() < 2) return;
    writer_.thread({pid_, kSteps}, "\"steps\"");
    for (std::size_t i = 1; i < process_.steps.size(); ++i) {
      const auto& step = process_.steps[i];
      const auto& before = process_.steps[i - 1];
      if (step.number != before.number + 1) continue;
      writer_.slice(
          {pid_, kSteps}, fmt::format("\"step {}\"", step.number), before.end_ns, step.end_ns,
          fmt::format(R"({{"samples":{},"data_ms":{:.3f}}})", step.samples,
                      static_cast<double>(step.phase_ns[static_cast<std::size_t>(model::Phase::data)]) / 1e6));
    }
  }

  void windows() {
    for (const auto& window : process_.windows) {
      const bool times = window.mode == model::RecordedWindow::Mode::times;
      writer_.slice({pid_, kWindows}, times ? "\"recorded: times\"" : "\"recorded: causes\"", window.start_ns,
                    window.end_ns, fmt::format(R"({{"steps":{},"lost":{}}})", window.steps, window.lost));
    }
    for (const auto& mark : process_.marks) writer_.instant({pid_, kWindows}, quoted(mark.text), mark.at_ns);
    for (const auto& trouble : process_.troubles)
      writer_.instant({pid_, kWindows}, quoted(trouble.text), trouble.at_ns);
    if (!process_.windows.empty() || !process_.marks.empty() || !process_.troubles.empty())
      writer_.thread({pid_, kWindows}, "\"recording\"");
  }

  void phases() {
    if (process_.phases.empty()) return;
    writer_.thread({pid_, kPhases}, "\"host phases\"");
    for (const auto& span : process_.phases)
      writer_.slice({pid_, kPhases}, quoted(to_string(span.phase)), span.start_ns, span.end_ns,
                    fmt::format(R"({{"site":{}}})", text(span.site)));
  }

  /// Samples stand for the time until the next one, unless that is far away: then recording paused.
  void lines() {
    if (process_.samples.empty()) return;
    writer_.thread({pid_, kLines}, "\"Python line\"");
    const auto reach = 2 * usual_gap();
    const auto& samples = process_.samples;
    for (std::size_t i = 0; i < samples.size();) {
      auto last = i;
      const auto joins = [&](std::size_t next) {
        return next < samples.size() && samples[next].stack == samples[i].stack &&
               samples[next].at_ns - samples[last].at_ns <= reach;
      };
      while (joins(last + 1)) ++last;
      const auto limit = samples[last].at_ns + reach / 2;
      const auto end = last + 1 < samples.size() ? std::min(limit, samples[last + 1].at_ns) : limit;
      line(samples[i].stack, samples[i].at_ns, end);
      i = last + 1;
    }
  }

  std::uint64_t usual_gap() const {
    std::vector<std::uint64_t> gaps;
    for (std::size_t i = 1; i < process_.samples.size(); ++i)
      gaps.push_back(process_.samples[i].at_ns - process_.samples[i - 1].at_ns);
    if (gaps.empty()) return 1'000'000;
    const auto middle = gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2);
    std::ranges::nth_element(gaps, middle);
    return *middle;
  }

  void line(std::uint32_t stack, std::uint64_t start_ns, std::uint64_t end_ns) {
    if (stack >= process_.stacks.size() || process_.stacks[stack].empty()) return;
    std::string frames;
    for (const auto& site : process_.stacks[stack])
      frames += fmt::format("{}{}:{} {}", frames.empty() ? "" : " < ", site.file, site.line, site.function);
    const auto& top = process_.stacks[stack].front();
    writer_.slice({pid_, kLines}, quoted(fmt::format("{}:{} {}", base::file_name(top.file), top.line, top.function)),
                  start_ns, end_ns, fmt::format(R"({{"stack":{}}})", quoted(frames)));
  }

  void fetches() {
    std::map<int, bool> named;
    for (const auto& fetch : process_.fetches) {
      const Track track{pid_, kFetches + static_cast<std::uint64_t>(std::max(-1, fetch.worker) + 1)};
      if (!named.contains(fetch.worker)) {
        named[fetch.worker] = true;
        writer_.thread(track, fetch.worker < 0 ? "\"loading\"" : fmt::format("\"loader worker {}\"", fetch.worker));
      }
      writer_.slice(track, "\"batch\"", fetch.start_ns, fetch.end_ns,
                    fmt::format(R"({{"samples":{},"cpu_ms":{:.3f},"collate_ms":{:.3f},"read_kib":{}}})", fetch.samples,
                                static_cast<double>(fetch.cpu_ns) / 1e6, static_cast<double>(fetch.collate_ns) / 1e6,
                                fetch.read_kib));
    }
  }

  void calls() {
    std::map<std::uint64_t, std::uint64_t> lanes;
    for (const auto& call : process_.calls) {
      const auto [lane, is_new] = lanes.emplace(call.thread, kCalls + lanes.size());
      const Track track{pid_, lane->second};
      if (is_new) writer_.thread(track, fmt::format("\"CUDA calls, thread {}\"", call.thread));
      writer_.slice(track, text(call.name), call.start_ns, call.end_ns,
                    fmt::format(R"({{"correlation":{}}})", call.correlation));
      launches_[call.correlation] = {track, call.start_ns};
    }
  }

  void activities() {
    std::map<std::pair<int, std::uint64_t>, Track> lanes;
    std::map<int, bool> named;
    for (const auto& activity : process_.activities) {
      const auto gpu =
          kGpuLanes + number_ * kLanesPerProcess + static_cast<std::uint64_t>(std::max(0, activity.device));
      if (!named.contains(activity.device)) {
        named[activity.device] = true;
        writer_.process(gpu, quoted(fmt::format("GPU {} of {}", activity.device, process_.pid)),
                        static_cast<int>(number_) * 2 + 1);
      }
      const auto [lane, is_new] =
          lanes.emplace(std::pair(activity.device, activity.stream), Track{gpu, lanes.size() + 1});
      if (is_new) writer_.thread(lane->second, fmt::format("\"stream {}\"", activity.stream));
      this->activity(lane->second, activity);
    }
  }

  void activity(Track track, const GpuActivity& activity) {
    if (activity.kind == GpuActivity::Kind::kernel) {
      writer_.slice(track, text(activity.name), activity.start_ns, activity.end_ns,
                    fmt::format(R"({{"blocks":{},"threads":{},"correlation":{}}})", activity.blocks, activity.threads,
                                activity.correlation));
    } else {
      writer_.slice(track, copy_name(activity), activity.start_ns, activity.end_ns,
                    fmt::format(R"({{"bytes":{},"correlation":{}}})", activity.bytes, activity.correlation));
    }
    const auto launch = launches_.find(activity.correlation);
    if (activity.correlation == 0 || launch == launches_.end()) return;
    // A process's correlations count from 1, so its number in front makes them one of a kind.
    writer_.flow((static_cast<std::uint64_t>(number_) << 40U) | activity.correlation, launch->second.first,
                 launch->second.second, track, activity.start_ns);
  }

  void figures() {
    constexpr double kGib = 1024.0 * 1024 * 1024;
    for (const auto& sample : process_.memory) {
      const auto label = [&](std::string_view what) { return fmt::format("\"{}, GPU {}, GiB\"", what, sample.device); };
      writer_.counter(pid_, label("allocated"), sample.at_ns, static_cast<double>(sample.allocated_bytes) / kGib);
      writer_.counter(pid_, label("reserved"), sample.at_ns, static_cast<double>(sample.reserved_bytes) / kGib);
    }
    for (const auto& sample : process_.losses) writer_.counter(pid_, "\"loss\"", sample.at_ns, sample.value);
  }

  TraceWriter& writer_;
  const TrainingProcess& process_;
  std::uint64_t pid_;
  std::size_t number_;
  std::vector<std::string> names_;
  std::unordered_map<std::uint64_t, std::pair<Track, std::uint64_t>> launches_;
};

}  // namespace

void write_process(TraceWriter& writer, const TrainingProcess& process, std::size_t number) {
  ProcessTrace(writer, process, number).write();
}

}  // namespace fullwatt::show
