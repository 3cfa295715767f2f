#include "fullwatt/record/recorder/recorder.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include <pthread.h>
#include <unistd.h>

#include "fullwatt/record/recorder/capture.hpp"
#include "fullwatt/record/recorder/hooks.hpp"
#include "fullwatt/record/recorder/line_sampler.hpp"
#include "fullwatt/record/recorder/native.hpp"
#include "fullwatt/record/recorder/schedule.hpp"
#include "fullwatt/record/recorder/step_counter.hpp"
#include "fullwatt/record/spool_writer.hpp"
#include "fullwatt/vendor/python/stack.hpp"

namespace fullwatt::record {
namespace {

/// A process has one recorder. Null until it is opened, and again after a fork.
struct Recorder {
  explicit Recorder(SpoolWriter* writer, const ScheduleOptions& options)
      : spool(*writer), schedule(options), capture(*writer) {}

  SpoolWriter& spool;
  PendingSteps pending;
  StepCounter steps;
  Schedule schedule;
  Capture capture;
  vendor::python::KnownCodes codes;
  std::unique_ptr<LineSampler> lines;
};

Recorder* recorder = nullptr;
bool is_forked = false;

std::string& trouble() {
  static auto* text = new std::string;  // read by the agent as long as the process lives
  return *text;
}

std::uint64_t number_from(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : 0;
}

bool is(const char* variable, const char* wanted) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::strcmp(value, wanted) == 0;
}

/// The mapping, the locks and the threads are the parent's: the child only forgets them.
void forget_parent() {
  recorder = nullptr;
  is_forked = true;
}

std::string spool_path(const char* folder) {
  return std::string(folder) + "/spool-" + std::to_string(::getpid()) + ".fw";
}

void write_sample(Recorder& own, std::uint64_t at_ns, std::uint32_t stack) {
  if (stack == 0) return;
  Record record{};
  record.kind = Kind::sample;
  record.id = stack;
  record.start_ns = at_ns;
  own.spool.append(record);
}

void write_step(Recorder& own, std::uint32_t optimizer, std::uint64_t end_ns) {
  own.steps.flag(own.capture.step_flags());
  own.steps.finish(own.spool, optimizer, end_ns);
  own.capture.count_step();
}

void write_step(Recorder& own, const SteadyStep& step) {
  own.steps.samples(step.samples);
  own.steps.phase(Phase::data, step.data_ns);
  own.steps.phase(Phase::backward, step.backward_ns);
  own.steps.phase(Phase::optimizer, step.optimizer_ns);
  write_step(own, step.optimizer, step.end_ns);
}

/// Before anything happens that belongs to the step in progress.
void write_pending(Recorder& own) {
  if (own.pending.steps().empty()) return;
  for (const auto& step : own.pending.steps()) {
    write_step(own, step);
    own.schedule.pass_step(step.end_ns);
  }
  own.pending.clear(own.schedule.quiet_steps());
}

/// A step has been written that ended at `end_ns`. Returns what the agent is to do now.
std::uint32_t ask_schedule(Recorder& own, std::uint64_t end_ns) {
  if (own.spool.header().thread.load(std::memory_order_relaxed) == 0)
    own.spool.header().thread = static_cast<std::uint32_t>(::gettid());
  const auto actions = own.schedule.after_step(end_ns, own.capture.has_room());
  // What is done now falls into the step that begins now.
  if ((actions & (FULLWATT_OPEN_TIMES | FULLWATT_OPEN_CAUSES | FULLWATT_CLOSE)) != 0) own.steps.flag(kSwitching);
  if ((actions & FULLWATT_MEASURE) != 0) own.steps.flag(kMeasured);
  if ((actions & FULLWATT_CEILING) != 0) own.capture.begin_ceiling();
  return actions;
}

/// As write_pending, and the schedule is asked after the last one.
std::uint32_t finish_pending(Recorder& own) {
  const auto steps = own.pending.steps();
  for (const auto& step : steps.first(steps.size() - 1)) {
    write_step(own, step);
    own.schedule.pass_step(step.end_ns);
  }
  write_step(own, steps.back());
  const auto actions = ask_schedule(own, steps.back().end_ns);
  own.pending.clear(own.schedule.quiet_steps());
  return actions;
}

}  // namespace

bool forked() {
  return is_forked;
}

Capture* native_capture() {
  return recorder != nullptr ? &recorder->capture : nullptr;
}

}  // namespace fullwatt::record

using namespace fullwatt::record;  // NOLINT(google-build-using-namespace): the C interface below is this namespace's
                                   // face

int fullwatt_version(void) {
  return FULLWATT_RECORDER_VERSION;
}

const char* fullwatt_trouble(void) {
  return trouble().c_str();
}

int fullwatt_open(const char* run_folder, int role, int rank) {
  if (recorder != nullptr) return 0;
  const auto kind = static_cast<Role>(role);
  const auto bytes = kind == Role::worker ? kWorkerSpoolBytes : kMainSpoolBytes;
  auto writer = SpoolWriter::create(spool_path(run_folder), kind, rank, bytes);
  if (!writer) {
    trouble() = writer.error().message;
    return -1;
  }
  static const bool kRegistered = ::pthread_atfork(nullptr, nullptr, forget_parent) == 0;
  static_cast<void>(kRegistered);
  ScheduleOptions options;
  options.windows = kind == Role::trainer && !is("FULLWATT_WINDOWS", "off");
  options.stop_after_steps = number_from("FULLWATT_STEPS");
  options.enough_ns = number_from("FULLWATT_ENOUGH_SECONDS") * 1'000'000'000;
  options.ceiling = is("FULLWATT_CEILING", "1");
  recorder = new Recorder(*writer, options);
  return 0;
}

void fullwatt_phase(int phase, uint64_t start_ns, uint32_t site) {
  if (recorder == nullptr || phase < 0 || phase >= static_cast<int>(kPhases)) return;
  const auto now = now_ns();
  const auto length = now > start_ns ? now - start_ns : 0;
  write_pending(*recorder);
  recorder->steps.phase(static_cast<Phase>(phase), length);
  if (recorder->capture.is_open()) recorder->capture.phase(static_cast<Phase>(phase), start_ns, length, site);
}

uint32_t fullwatt_step(uint32_t optimizer, uint64_t start_ns, uint32_t site) {
  if (recorder == nullptr || !recorder->spool.keeps_steps()) return 0;
  fullwatt_phase(static_cast<int>(Phase::optimizer), start_ns, site);
  const auto now = now_ns();
  write_step(*recorder, optimizer, now);
  return ask_schedule(*recorder, now);
}

uint32_t fullwatt_steady_step(uint32_t optimizer, uint64_t start_ns, uint64_t end_ns, uint64_t samples,
                              uint64_t data_ns, uint64_t backward_ns) {
  if (recorder == nullptr || !recorder->spool.keeps_steps()) return 0;
  const auto spent = end_ns > start_ns ? end_ns - start_ns : 0;
  if (optimizer == FULLWATT_REHEARSAL) {
    recorder->steps.phase(Phase::agent, spent + data_ns + backward_ns);
    return 0;
  }
  const bool due = recorder->pending.add({end_ns, spent, data_ns, backward_ns, samples, optimizer});
  return due ? finish_pending(*recorder) : 0;
}

void* fullwatt_python_hook(int kind, fullwatt_training* training, void* original, void* python_hook, void* then) {
  return make_hook(static_cast<HookKind>(kind), training, original, python_hook, then);
}

void fullwatt_samples(uint64_t samples) {
  if (recorder == nullptr) return;
  write_pending(*recorder);
  recorder->steps.samples(samples);
}

void fullwatt_flag(uint32_t step_flag) {
  if (recorder == nullptr) return;
  write_pending(*recorder);
  recorder->steps.flag(step_flag);
}

uint32_t fullwatt_text(const char* bytes, uint32_t length) {
  return recorder != nullptr ? recorder->spool.text({bytes, length}) : 0;
}

int fullwatt_sampler_start(uint64_t period_ns) {
  const auto reader = fullwatt::vendor::python::FrameReader::of_this_thread();
  if (recorder == nullptr || !reader) return 1;
  recorder->codes.hope_again();
  recorder->codes.learn(::pthread_self());
  recorder->lines = std::make_unique<LineSampler>(*reader, recorder->codes, std::chrono::nanoseconds(period_ns));
  return 0;
}

uint32_t fullwatt_sampler_stop(void) {
  if (recorder == nullptr || recorder->lines == nullptr) return 0;
  recorder->lines->stop();
  return static_cast<uint32_t>(recorder->lines->stacks().size());
}

uint32_t fullwatt_sampler_unknown(uint64_t* addresses, uint32_t most) {
  if (recorder == nullptr || recorder->lines == nullptr) return 0;
  const auto unknown = recorder->lines->unknown();
  const auto count = std::min<std::size_t>(unknown.size(), most);
  std::copy_n(unknown.begin(), count, addresses);
  return static_cast<uint32_t>(count);
}

void fullwatt_sampler_tell(void* code) {
  if (recorder != nullptr) recorder->codes.keep(code);
}

void* fullwatt_sampler_stack(uint32_t number) {
  return recorder->codes.tuple_of(*recorder->lines->stacks()[number]);
}

void fullwatt_sampler_write(const uint32_t* texts) {
  if (recorder == nullptr || recorder->lines == nullptr) return;
  for (const auto& sample : recorder->lines->samples()) write_sample(*recorder, sample.at_ns, texts[sample.stack]);
  recorder->lines.reset();
}

void fullwatt_sample(uint32_t stack) {
  if (recorder != nullptr) write_sample(*recorder, now_ns(), stack);
}

void* fullwatt_python_stack(unsigned long thread) {
  return fullwatt::vendor::python::stack_of(thread);
}

int fullwatt_python_stack_known(void) {
  return fullwatt::vendor::python::stacks_known() ? 1 : 0;
}

void fullwatt_cost(uint64_t ns_per_step) {
  if (recorder != nullptr) recorder->spool.header().hook_cost_ns = ns_per_step;
}

void fullwatt_record(int kind, int flags, uint32_t id, uint64_t start_ns, uint64_t duration_ns, uint64_t a, uint64_t b,
                     uint32_t c, uint32_t d) {
  if (recorder == nullptr || kind <= static_cast<int>(Kind::text) || kind > static_cast<int>(Kind::trouble)) return;
  recorder->spool.append(
      {static_cast<Kind>(kind), static_cast<std::uint8_t>(flags), 0, id, start_ns, duration_ns, a, b, c, d});
}

int fullwatt_window_open(int mode) {
  if (recorder == nullptr) return 1;
  const auto start = now_ns();
  const auto opened = recorder->capture.open(static_cast<Window>(mode));
  if (!opened) trouble() = opened.error().message;
  recorder->steps.phase(Phase::agent, now_ns() - start);
  return opened ? 0 : 1;
}

void fullwatt_window_close(void) {
  if (recorder == nullptr) return;
  const auto start = now_ns();
  recorder->capture.close();
  recorder->steps.phase(Phase::agent, now_ns() - start);
}

void fullwatt_yield(int yes, const char* to_whom) {
  if (recorder == nullptr) return;
  if (recorder->capture.yield(yes != 0, to_whom != nullptr ? to_whom : "another profiler"))
    recorder->schedule.window_lost();
}

void fullwatt_postpone(void) {
  if (recorder != nullptr) recorder->schedule.postpone();
}

void fullwatt_close(void) {
  if (recorder == nullptr) return;
  write_pending(*recorder);
  recorder->lines.reset();
  recorder->capture.close();
  recorder->spool.header().state = State::closed;
  // The mapping stays: hooks of other threads may still be on their way through it.
  recorder = nullptr;
}

void fullwatt_forked(void) {
  forget_parent();
}

int InitializeInjection(void) {
  return start_native();
}
