#include "fullwatt/explain/explain.hpp"

#include <algorithm>
#include <tuple>

#include "fullwatt/explain/causes.hpp"
#include "fullwatt/explain/course.hpp"
#include "fullwatt/explain/evidence.hpp"
#include "fullwatt/explain/example_step.hpp"
#include "fullwatt/explain/native.hpp"
#include "fullwatt/explain/resources.hpp"
#include "fullwatt/explain/rules/loader_work.hpp"
#include "fullwatt/explain/rules/rules.hpp"
#include "fullwatt/explain/settings.hpp"
#include "fullwatt/explain/source_facts.hpp"
#include "fullwatt/explain/summary.hpp"
#include "fullwatt/explain/trained_gpu.hpp"

namespace fullwatt::explain {
namespace {

/// All that is worked out before anything is judged.
struct Analysis {
  const model::Run& run;
  std::vector<ProcessFacts> all_facts;
  const model::TrainingProcess* trainer = nullptr;
  ProcessFacts facts;
  Steps steps;
  GpuTime gpu_time;
  TrainedGpu gpu;
  Attribution attribution;
  Replay replay;
};

/// The process of the lowest rank that made steps, of several the one that made most.
std::optional<std::size_t> find_trainer(const model::Run& run) {
  std::optional<std::size_t> best;
  const auto order = [&](std::size_t i) {
    const auto& process = run.processes[i];
    return std::tuple(std::max(process.rank, 0), -static_cast<std::int64_t>(process.step_count));
  };
  for (std::size_t i = 0; i < run.processes.size(); ++i) {
    const auto& process = run.processes[i];
    if (process.role == model::TrainingProcess::Role::worker || process.steps.empty()) continue;
    if (!best || order(i) < order(*best)) best = i;
  }
  return best;
}

void read_facts(Analysis& analysis) {
  for (const auto& process : analysis.run.processes) analysis.all_facts.push_back(parse_facts(process));
  const auto trainer = find_trainer(analysis.run);
  if (!trainer) return;
  analysis.trainer = &analysis.run.processes[*trainer];
  analysis.facts = analysis.all_facts[*trainer];
}

/// Steps, then the GPU's time, then its causes, then what could be gained: each needs the one before.
void attribute(Analysis& analysis, model::Explanation& explanation) {
  const auto& trainer = *analysis.trainer;
  auto measured = measure_steps(trainer);
  analysis.steps = std::move(measured.steps);
  analysis.gpu_time = std::move(measured.time);
  const auto& steps = analysis.steps;
  const auto& time = analysis.gpu_time;
  const auto recorded = read_causes(trainer, analysis.facts, steps, time.device);
  const auto pace = loader_pace(analysis.run, analysis.all_facts, trainer, analysis.facts, steps);
  analysis.attribution =
      time.known() ? attribute_gpu(trainer, steps, time, recorded, pace.loads_itself) : attribute_host(steps, recorded);
  analysis.replay = make_replay(trainer, steps, time, recorded, analysis.attribution, pace);
  explanation.causes = causes_of(analysis.attribution, steps.mean_ms());
  price(explanation.causes, analysis.replay);
  explanation.lines = lines_of(analysis.attribution);
  explanation.kernels = kernel_groups(time);
  auto example = example_step(trainer, recorded, time.known());
  explanation.example_step = std::move(example.bars);
  explanation.example_step_ms = example.ms;
}

void describe_steps(const Analysis& analysis, model::Explanation& explanation) {
  const auto& steps = analysis.steps;
  explanation.steps = count_steps(*analysis.trainer);
  explanation.step_ms = steps.step_ms;
  explanation.ceiling_ms = ceiling_ms(steps);
  if (steps.known() && steps.samples > 0) {
    explanation.samples_per_step = steps.samples;
    explanation.samples_per_second = steps.samples / steps.mean_ms() * 1e3;
  }
}

void describe_gpu(const Analysis& analysis, model::Explanation& explanation) {
  const auto& time = analysis.gpu_time;
  explanation.has_gpu = time.known() || analysis.facts.on_gpu();
  explanation.no_gpu_records = no_records_reason(*analysis.trainer, analysis.facts, time);
  explanation.unexplained_ms = analysis.attribution.ms(cause::kUnexplained);
  if (!time.known()) return;
  explanation.gpu_busy_ms = time.busy_ms;
  const double idle = analysis.attribution.idle_ms;
  explanation.explained_idle_share = idle > 0 ? std::clamp(1 - explanation.unexplained_ms / idle, 0.0, 1.0) : 1;
}

void describe_course(const Analysis& analysis, model::Explanation& explanation) {
  const auto& trainer = *analysis.trainer;
  explanation.trend = trend_of(analysis.run, trainer, analysis.steps, analysis.gpu);
  explanation.between = between_steps(trainer, analysis.steps);
  explanation.overhead_steady_us = trainer.hook_cost_ns / 1e3;
  explanation.overhead_share = overhead_share(trainer, analysis.steps);
  explanation.epoch_left_s = epoch_left_s(trainer, analysis.facts, analysis.steps);
}

void describe_energy(const Analysis& analysis, model::Explanation& explanation) {
  explanation.energy_kwh = energy_kwh(analysis.run, analysis.gpu);
  if (explanation.energy_kwh && analysis.run.info.price_per_kwh) {
    explanation.energy_cost = *explanation.energy_kwh * *analysis.run.info.price_per_kwh;
  }
}

void describe(Analysis& analysis, model::Explanation& explanation) {
  analysis.gpu = find_trained_gpu(analysis.run, analysis.facts, analysis.gpu_time);
  describe_steps(analysis, explanation);
  describe_gpu(analysis, explanation);
  describe_course(analysis, explanation);
  explanation.resources =
      resources_of(analysis.run, *analysis.trainer, analysis.facts, analysis.steps, analysis.gpu_time, analysis.gpu);
  explanation.ranks = ranks_of(analysis.run);
  explanation.fixes = fixes_of(analysis.facts);
  explanation.facts = facts_table(analysis.facts, analysis.steps, analysis.gpu);
  explanation.remarks = remarks_of(*analysis.trainer, analysis.facts, analysis.steps, analysis.gpu_time);
}

void describe_without_steps(const model::Run& run, model::Explanation& explanation) {
  for (const auto& process : run.processes) {
    for (const auto& trouble : process.troubles) explanation.remarks.push_back(trouble.text);
  }
  describe_native(run, explanation);
}

bool is_worth_a_change(const model::Finding& finding) {
  return finding.gain_ms.value_or(0) > 0 || finding.severity >= model::Severity::warning;
}

void judge(const Analysis& analysis, model::Explanation& explanation) {
  const auto source = parse_source_facts(analysis.run.source_facts);
  const Evidence evidence{analysis.run,   analysis.trainer,  explanation,          analysis.facts,  analysis.all_facts,
                          analysis.steps, analysis.gpu_time, analysis.attribution, analysis.replay, analysis.gpu.peaks};
  if (analysis.trainer != nullptr) explanation.padding_ms = padding_ms(evidence);
  auto settings = compare_settings(evidence, source);
  auto findings = find_all(evidence, source, settings);
  explanation.settings = std::move(settings);
  explanation.findings = std::move(findings);
  if (!explanation.findings.empty() && is_worth_a_change(explanation.findings.front())) {
    explanation.verdict = explanation.findings.front().id;
  }
}

}  // namespace

std::string interpreter_of(const model::Run& run) {
  const auto trainer = find_trainer(run);
  return trainer ? parse_facts(run.processes[*trainer]).process.executable : std::string();
}

model::Explanation explain(const model::Run& run) {
  model::Explanation explanation;
  explanation.info = run.info;
  Analysis analysis{.run = run};
  read_facts(analysis);
  if (analysis.trainer != nullptr) {
    attribute(analysis, explanation);
    describe(analysis, explanation);
  } else {
    describe_without_steps(run, explanation);
  }
  describe_energy(analysis, explanation);
  judge(analysis, explanation);
  return explanation;
}

}  // namespace fullwatt::explain
