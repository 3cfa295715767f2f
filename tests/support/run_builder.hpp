#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fullwatt/model/run.hpp"
#include "fullwatt/record/format.hpp"

/// Trainings made by hand. A Script says what one step does; the builder plays it on a pretended host and GPU, and
/// writes down what the recorder would have seen: plain steps, then a window of kernel times, then a window of causes.
namespace fullwatt::tests {

constexpr const char* kTrainFile = "/home/ada/train.py";
constexpr const char* kTorchFile = "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py";
constexpr const char* kNumpyFile = "/venv/lib/python3.11/site-packages/numpy/core/numeric.py";

/// What one training step does, in order. Lines are those of kTrainFile; times in milliseconds.
class Script {
 public:
  enum class Kind { work, launch, sync, copy, call, begin, end, step };
  struct Operation {
    Kind kind = Kind::work;
    int line = 0;
    double host_ms = 0;
    double gpu_ms = 0;
    std::string name;  ///< of the kernel, the call, or the library file that is the innermost frame
    std::uint64_t stream = 7;
    model::Phase phase = model::Phase::data;
    std::uint64_t bytes = 0;
    bool to_device = true;
    bool pageable = false;
    std::uint32_t blocks = 1024;
    int optimizer = 0;
  };

  /// Python at a line of the user's own.
  Script& python(int line, double ms) { return add({.kind = Kind::work, .line = line, .host_ms = ms}); }
  /// A library's Python called from a line.
  Script& library(int line, double ms, std::string file = kTorchFile) {
    return add({.kind = Kind::work, .line = line, .host_ms = ms, .name = std::move(file)});
  }
  Script& launch(int line, std::string kernel, double gpu_ms, double host_ms = 0.01, std::uint64_t stream = 7) {
    return add({.kind = Kind::launch,
                .line = line,
                .host_ms = host_ms,
                .gpu_ms = gpu_ms,
                .name = std::move(kernel),
                .stream = stream});
  }
  Script& launches(int count, int line, const std::string& kernel, double gpu_ms, double host_ms = 0.01) {
    for (int i = 0; i < count; ++i) launch(line, kernel, gpu_ms, host_ms);
    return *this;
  }
  /// Waits until the GPU has done all.
  Script& sync(int line, std::string name = "cudaStreamSynchronize") {
    return add({.kind = Kind::sync, .line = line, .name = std::move(name)});
  }
  /// cudaMemcpyAsync; from or to pageable memory it blocks until it is done.
  Script& copy(int line, std::uint64_t bytes, double gpu_ms, bool pageable, bool to_device = true,
               std::uint64_t stream = 7) {
    return add({.kind = Kind::copy,
                .line = line,
                .host_ms = 0.005,
                .gpu_ms = gpu_ms,
                .name = "cudaMemcpyAsync",
                .stream = stream,
                .bytes = bytes,
                .to_device = to_device,
                .pageable = pageable});
  }
  /// Any other call into CUDA, such as cudaMalloc.
  Script& call(int line, std::string name, double ms) {
    return add({.kind = Kind::call, .line = line, .host_ms = ms, .name = std::move(name)});
  }
  Script& begin(model::Phase phase, int line) { return add({.kind = Kind::begin, .line = line, .phase = phase}); }
  Script& end() { return add({.kind = Kind::end}); }
  Script& data(int line, double ms) { return begin(model::Phase::data, line).library(line, ms).end(); }
  /// An optimiser's step ends here; a script without one gets it at its end.
  Script& step(int optimizer = 0) { return add({.kind = Kind::step, .optimizer = optimizer}); }

  const std::vector<Operation>& operations() const { return operations_; }

 private:
  Script& add(Operation operation) {
    operations_.push_back(std::move(operation));
    return *this;
  }
  std::vector<Operation> operations_;
};

/// Plays a Script and records it.
class RunBuilder {
 public:
  RunBuilder() {
    process_.pid = 4711;
    process_.rank = -1;
    process_.opened_ns = kStart;
    process_.closed = true;
    process_.hook_cost_ns = 4000;
    fact("process", R"({"pid":4711,"role":"trainer","main":"/home/ada/train.py","torch":"2.11.0","python":"3.11.2",)"
                    R"("prefixes":["/usr/lib/python3.11","/venv/lib/python3.11"]})");
  }

  /// json: an object; kind and at_ns are added.
  RunBuilder& fact(const std::string& kind, const std::string& json) {
    const auto inner = json.substr(1);
    process_.facts.push_back({kind, R"({"kind":")" + kind + R"(","at_ns":1)" + (inner == "}" ? "" : ",") + inner});
    return *this;
  }
  RunBuilder& samples_per_step(std::uint64_t samples) {
    samples_per_step_ = samples;
    return *this;
  }
  /// What recording costs the host, for each launch: in windows of times, and in windows of causes.
  RunBuilder& recording_cost(double times_ms, double causes_ms) {
    times_cost_ms_ = times_ms;
    causes_cost_ms_ = causes_ms;
    return *this;
  }
  RunBuilder& sample_period(double ms) {
    sample_period_ms_ = ms;
    return *this;
  }
  /// CPU training, or CUPTI missing: neither activities nor calls are recorded.
  RunBuilder& without_gpu_records() {
    gpu_records_ = false;
    return *this;
  }
  RunBuilder& plain(const Script& script, int steps) { return play(script, steps, Mode::plain, 0); }
  RunBuilder& flagged(const Script& script, int steps, unsigned flags) {
    return play(script, steps, Mode::plain, flags);
  }
  RunBuilder& times(const Script& script, int steps) { return window(script, steps, Mode::times); }
  RunBuilder& causes(const Script& script, int steps) { return window(script, steps, Mode::causes); }
  /// Plain steps and both windows, as a run of some length has them.
  RunBuilder& train(const Script& script, int steps = 100) {
    return plain(script, steps / 2)
        .times(script, 12)
        .plain(script, 3)
        .causes(script, 12)
        .plain(script, steps - steps / 2);
  }

  model::TrainingProcess& process() { return process_; }
  model::Run& run() { return run_; }
  model::Run build() const {
    auto run = run_;
    run.info.id = "test";
    run.info.seconds = host_ms_ / 1e3;
    run.processes.insert(run.processes.begin(), process_);
    return run;
  }
  double now_ms() const { return host_ms_; }
  static constexpr std::uint64_t kStart = 1'000'000'000'000ULL;
  static std::uint64_t at_ns(double ms) { return kStart + static_cast<std::uint64_t>(std::llround(ms * 1e6)); }

 private:
  enum class Mode { plain, times, causes };

  std::uint32_t text(const std::string& words) {
    const auto [at, fresh] = text_ids_.try_emplace(words, static_cast<std::uint32_t>(process_.texts.size()));
    if (fresh) process_.texts.push_back(words);
    return at->second;
  }
  std::uint32_t stack(int line, const std::string& leaf) {
    const auto [at, fresh] = stack_ids_.try_emplace({line, leaf}, static_cast<std::uint32_t>(process_.stacks.size()));
    if (fresh) {
      std::vector<model::Site> frames;
      if (!leaf.empty()) frames.push_back({leaf, 100, "inner"});
      frames.push_back({kTrainFile, line, "train"});
      process_.stacks.push_back(frames);
    }
    return at->second;
  }
  /// The host is busy at a line until `end_ms`; the sampler looks at it at every tick.
  void pass(double end_ms, int line, const std::string& leaf, Mode mode) {
    for (; next_sample_ms_ < end_ms; next_sample_ms_ += sample_period_ms_) {
      if (mode == Mode::causes && next_sample_ms_ >= host_ms_)
        process_.samples.push_back({at_ns(next_sample_ms_), stack(line, leaf)});
    }
    host_ms_ = std::max(host_ms_, end_ms);
  }
  double cost(Mode mode) const {
    return mode == Mode::times ? times_cost_ms_ : mode == Mode::causes ? causes_cost_ms_ : 0;
  }
  bool records(Mode mode) const { return mode != Mode::plain && gpu_records_; }

  void called(const Script::Operation& operation, double start_ms, const std::string& name, Mode mode) {
    if (mode != Mode::causes || !gpu_records_) return;
    process_.calls.push_back({.start_ns = at_ns(start_ms),
                              .end_ns = at_ns(host_ms_),
                              .name = text(name),
                              .correlation = correlation_,
                              .thread = in_backward() ? 4999ULL : 4711ULL});
    static_cast<void>(operation);
  }
  bool in_backward() const { return !open_.empty() && open_.back().phase == model::Phase::backward; }

  /// The driver holds so many launches; the next one waits until the oldest has begun to run.
  double when_queue_has_room(double now_ms) {
    while (!queued_ms_.empty() && queued_ms_.front() <= now_ms) queued_ms_.pop_front();
    return queued_ms_.size() < kQueueLength ? now_ms : queued_ms_.front();
  }
  void on_gpu(const Script::Operation& operation, double launched_ms, Mode mode) {
    auto& free_ms = stream_free_ms_[operation.stream];
    const double start = std::max(launched_ms, free_ms);
    free_ms = start + operation.gpu_ms;
    queued_ms_.push_back(free_ms);
    if (!records(mode)) return;
    model::GpuActivity activity;
    activity.start_ns = at_ns(start);
    activity.end_ns = at_ns(free_ms);
    activity.correlation = correlation_;
    activity.stream = operation.stream;
    if (operation.kind == Script::Kind::copy) {
      activity.kind = model::GpuActivity::Kind::copy;
      activity.bytes = operation.bytes;
      activity.copy_kind = operation.to_device ? 1 : 2;
      const std::uint8_t host_memory = operation.pageable ? 1 : 2;
      activity.source_kind = operation.to_device ? host_memory : std::uint8_t{3};
      activity.destination_kind = operation.to_device ? std::uint8_t{3} : host_memory;
    } else {
      activity.name = text(operation.name);
      activity.blocks = operation.blocks;
      activity.threads = 128;
    }
    process_.activities.push_back(activity);
  }
  double gpu_done_ms() const {
    double latest = 0;
    for (const auto& [stream, free_ms] : stream_free_ms_) latest = std::max(latest, free_ms);
    return latest;
  }

  void play(const Script::Operation& operation, Mode mode, unsigned flags) {
    using Kind = Script::Kind;
    const double start = host_ms_;
    const std::string torch = kTorchFile;
    switch (operation.kind) {
      case Kind::work:
        pass(start + operation.host_ms, operation.line, operation.name, mode);
        break;
      case Kind::launch:
        ++correlation_;
        pass(start + operation.host_ms * 0.5 + cost(mode), operation.line, torch, mode);
        {
          const double call = host_ms_;
          pass(when_queue_has_room(call) + operation.host_ms * 0.5, operation.line, torch, mode);
          called(operation, call, "cudaLaunchKernel", mode);
        }
        on_gpu(operation, host_ms_, mode);
        break;
      case Kind::copy:
        ++correlation_;
        on_gpu(operation, start + operation.host_ms, mode);
        pass(operation.pageable ? stream_free_ms_[operation.stream] : start + operation.host_ms, operation.line, torch,
             mode);
        called(operation, start, operation.name, mode);
        break;
      case Kind::sync:
        ++correlation_;
        pass(std::max(start, gpu_done_ms()) + 0.002, operation.line, "", mode);
        called(operation, start, operation.name, mode);
        break;
      case Kind::call:
        ++correlation_;
        pass(start + operation.host_ms, operation.line, torch, mode);
        called(operation, start, operation.name, mode);
        break;
      case Kind::begin:
        open_.push_back({operation.phase, start, operation.line});
        break;
      case Kind::end:
        close_phase(mode);
        break;
      case Kind::step:
        close_step(operation.optimizer, flags);
        break;
    }
  }

  void close_phase(Mode mode) {
    const auto open = open_.back();
    open_.pop_back();
    phase_ms_[static_cast<std::size_t>(open.phase)] += host_ms_ - open.start_ms;
    if (mode == Mode::plain) return;
    const auto site = std::string(kTrainFile) + ":" + std::to_string(open.line) + ":train";
    process_.phases.push_back({open.phase, at_ns(open.start_ms), at_ns(host_ms_), text(site)});
  }
  void close_step(int optimizer, unsigned flags) {
    model::OptimizerStep step;
    step.number = ++process_.step_count;
    step.end_ns = at_ns(host_ms_);
    step.samples = samples_per_step_;
    process_.samples_total += samples_per_step_;
    step.optimizer = optimizer;
    step.flags = flags | std::exchange(flags_of_next_step_, 0U);
    for (std::size_t i = 0; i < phase_ms_.size(); ++i) {
      step.phase_ns[i] = static_cast<std::uint64_t>(std::llround(phase_ms_[i] * 1e6));
    }
    phase_ms_ = {};
    process_.steps.push_back(step);
  }

  RunBuilder& play(const Script& script, int steps, Mode mode, unsigned flags) {
    const auto is_step = [](const auto& operation) { return operation.kind == Script::Kind::step; };
    const bool has_step = std::ranges::any_of(script.operations(), is_step);
    for (int i = 0; i < steps; ++i) {
      for (const auto& operation : script.operations()) play(operation, mode, flags);
      if (!has_step) close_step(0, flags);
    }
    sort_all();
    return *this;
  }
  RunBuilder& window(const Script& script, int steps, Mode mode) {
    const unsigned flag = mode == Mode::times ? record::kInTimes : record::kInCauses;
    model::RecordedWindow window;
    window.mode = mode == Mode::times ? model::RecordedWindow::Mode::times : model::RecordedWindow::Mode::causes;
    wait_for_gpu();
    window.start_ns = at_ns(host_ms_);
    window.steps = static_cast<std::uint64_t>(steps);
    play(script, 1, mode, flag | record::kSwitching);
    if (steps > 2) play(script, steps - 2, mode, flag);
    play(script, 1, mode, flag | record::kSwitching);
    window.end_ns = at_ns(host_ms_);
    process_.windows.push_back(window);
    wait_for_gpu();
    flags_of_next_step_ = record::kSwitching;
    return *this;
  }
  /// As the recorder does when it opens and closes a window.
  void wait_for_gpu() {
    const double start = host_ms_;
    host_ms_ = std::max(host_ms_, gpu_done_ms());
    phase_ms_[static_cast<std::size_t>(model::Phase::agent)] += host_ms_ - start;
  }
  void sort_all() {
    std::ranges::stable_sort(process_.activities, {}, &model::GpuActivity::start_ns);
    std::ranges::stable_sort(process_.calls, {}, &model::ApiCall::start_ns);
    std::ranges::stable_sort(process_.phases, {}, &model::PhaseSpan::start_ns);
  }

  struct OpenPhase {
    model::Phase phase;
    double start_ms;
    int line;
  };
  model::Run run_;
  model::TrainingProcess process_;
  std::map<std::string, std::uint32_t> text_ids_;
  std::map<std::pair<int, std::string>, std::uint32_t> stack_ids_;
  std::map<std::uint64_t, double> stream_free_ms_;
  std::array<double, model::kPhaseCount> phase_ms_{};
  std::vector<OpenPhase> open_;
  static constexpr std::size_t kQueueLength = 100;
  std::deque<double> queued_ms_;
  std::uint64_t correlation_ = 0;
  unsigned flags_of_next_step_ = 0;
  std::uint64_t samples_per_step_ = 32;
  double host_ms_ = 0;
  double next_sample_ms_ = 0;
  double sample_period_ms_ = 0.5;
  double times_cost_ms_ = 0;
  double causes_cost_ms_ = 0;
  bool gpu_records_ = true;
};

}  // namespace fullwatt::tests
