// Whatever was recorded: the parts of a step sum to it, none is negative, and nothing gains more than the step has.

#include <algorithm>
#include <string>

#include "tests/support/run_builder.hpp"
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "fullwatt/explain/explain.hpp"

namespace fullwatt::explain {
namespace {

using model::Phase;
using tests::RunBuilder;
using tests::Script;

/// A length in milliseconds, short ones more often.
double length_ms() {
  return *rc::gen::element(0.001, 0.005, 0.02, 0.05, 0.3, 1.0, 4.0, 20.0);
}

int line() {
  return *rc::gen::inRange(1, 9);
}

void random_operation(Script& script) {
  const auto kernel = *rc::gen::element<std::string>("ampere_sgemm_128x64_tn", "nvjet_tst_192x192_64x3", "something",
                                                     "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
  switch (*rc::gen::inRange(0, 9)) {
    case 0:
      script.python(line(), length_ms());
      break;
    case 1:
      script.library(line(), length_ms());
      break;
    case 2:
      script.data(line(), length_ms());
      break;
    case 3:
      script.sync(line());
      break;
    case 4:
      script.copy(line(), 1 << 20, length_ms(), *rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<bool>());
      break;
    case 5:
      script.call(line(), *rc::gen::element<std::string>("cudaMalloc", "cuModuleLoadData", "cudaEventQuery"),
                  length_ms());
      break;
    default:
      script.launches(*rc::gen::inRange(1, 30), line(), kernel, length_ms() / 10, length_ms() / 20);
      break;
  }
}

Script random_script() {
  Script script;
  const int operations = *rc::gen::inRange(1, 10);
  for (int i = 0; i < operations; ++i) {
    const bool phase = *rc::gen::inRange(0, 4) == 0;
    if (phase) script.begin(*rc::gen::element(Phase::backward, Phase::optimizer, Phase::garbage, Phase::agent), line());
    random_operation(script);
    if (phase) script.end();
  }
  return script.python(line(), 0.01);
}

model::Run random_training() {
  RunBuilder builder;
  const auto script = random_script();
  if (*rc::gen::inRange(0, 4) == 0) builder.without_gpu_records();
  builder.recording_cost(*rc::gen::element(0.0, 0.003), *rc::gen::element(0.0, 0.02));
  builder.sample_period(*rc::gen::element(0.2, 1.0, 50.0));
  builder.fact("loader", R"({"id":0,"num_workers":)" + std::to_string(*rc::gen::inRange(0, 3)) + "}");
  builder.plain(script, *rc::gen::inRange(0, 20));
  if (*rc::gen::arbitrary<bool>()) builder.times(script, *rc::gen::inRange(1, 8));
  builder.plain(random_script(), *rc::gen::inRange(0, 5));
  if (*rc::gen::arbitrary<bool>()) builder.causes(script, *rc::gen::inRange(1, 8));
  builder.plain(script, *rc::gen::inRange(0, 20));
  return builder.build();
}

template <class Record>
void shake(std::vector<Record>& records, std::uint64_t Record::* start, std::uint64_t Record::* end) {
  for (auto& record : records) {
    if (*rc::gen::inRange(0, 5) != 0) continue;
    record.*start += static_cast<std::uint64_t>(*rc::gen::inRange(0, 3'000'000));
    record.*end = record.*start + static_cast<std::uint64_t>(*rc::gen::inRange(0, 9'000'000));
  }
  std::ranges::stable_sort(records, {}, start);
}

/// Records as no machine gives them: overlapping, out of their places, of texts and stacks that do not exist.
void break_records(model::TrainingProcess& process) {
  shake(process.activities, &model::GpuActivity::start_ns, &model::GpuActivity::end_ns);
  shake(process.calls, &model::ApiCall::start_ns, &model::ApiCall::end_ns);
  shake(process.phases, &model::PhaseSpan::start_ns, &model::PhaseSpan::end_ns);
  for (auto& sample : process.samples) sample.stack += static_cast<std::uint32_t>(*rc::gen::inRange(0, 2)) * 1000;
  for (auto& activity : process.activities) {
    if (*rc::gen::inRange(0, 8) != 0) continue;
    activity.name += 100'000;
    activity.correlation = 0;
    activity.device = *rc::gen::inRange(0, 2);
    activity.stream = static_cast<std::uint64_t>(*rc::gen::inRange(0, 3));
  }
  for (auto& step : process.steps) {
    if (*rc::gen::inRange(0, 10) == 0) step.phase_ns[0] += 5'000'000'000;
  }
}

void check(const model::Explanation& explanation) {
  const double step = explanation.step_ms.mean;
  double sum = 0;
  double after = 0;
  for (const auto& cause : explanation.causes) {
    RC_ASSERT(cause.charged_ms >= 0);
    RC_ASSERT(cause.gain_alone_ms.value_or(0) >= 0);
    RC_ASSERT(cause.gain_alone_ms.value_or(0) <= step + 1e-6);
    sum += cause.charged_ms;
    after += cause.gain_after_ms.value_or(0);
    double lines = 0;
    for (const auto& each : cause.lines) lines += each.ms;
    RC_ASSERT(lines <= cause.charged_ms + 1e-6);
  }
  RC_ASSERT(std::abs(sum - step) <= 1e-9 * std::max(1.0, step));
  RC_ASSERT(after <= step + 1e-6);
  RC_ASSERT(explanation.gpu_busy_ms.value_or(0) <= step + 1e-9);
  RC_ASSERT(explanation.explained_idle_share.value_or(0) >= 0 && explanation.explained_idle_share.value_or(0) <= 1);
  RC_ASSERT(explanation.unexplained_ms >= 0);
  RC_ASSERT(explanation.example_step.size() <= 400);
  RC_ASSERT(explanation.overhead_share >= 0 && explanation.overhead_share <= 1);
}

RC_GTEST_PROP(StepParts, SumToTheStep, ()) {
  check(explain(random_training()));
}

RC_GTEST_PROP(StepParts, SumToTheStepEvenWhenTheRecordsAreBroken, ()) {
  auto run = random_training();
  break_records(run.processes.front());
  check(explain(run));
}

}  // namespace
}  // namespace fullwatt::explain
