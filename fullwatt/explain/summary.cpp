#include "fullwatt/explain/summary.hpp"

#include <algorithm>
#include <cmath>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

/// "float32", or "bfloat16 90 %, float32 10 %" when a model has several.
std::string shares(const Counts& counts) {
  double total = 0;
  for (const auto& [name, count] : counts) total += count;
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, count] : counts) sorted.emplace_back(count, name);
  std::ranges::sort(sorted, std::greater{});
  std::vector<std::string> parts;
  for (const auto& [count, name] : sorted) {
    if (sorted.size() == 1) return name;
    parts.push_back(name + " " + std::to_string(std::lround(100 * count / total)) + " %");
  }
  return base::join(parts, ", ");
}

/// 25557032 → "25.6 M".
std::string in_short(double count) {
  const auto [unit, size] = count >= 1e9   ? std::pair(" G", 1e9)
                            : count >= 1e6 ? std::pair(" M", 1e6)
                            : count >= 1e3 ? std::pair(" k", 1e3)
                                           : std::pair("", 1.0);
  const auto tenths = std::lround(count / size * 10);
  auto text = std::to_string(tenths / 10);
  if (tenths % 10 != 0 && tenths < 1000) text += "." + std::to_string(tenths % 10);
  return text + unit;
}

std::string optimizers_of(const ProcessFacts& facts) {
  std::vector<std::string> parts;
  for (const auto& optimizer : facts.optimizers) {
    auto text = optimizer.class_name;
    if (optimizer.fused.value_or(false)) text += ", fused";
    if (std::ranges::find(parts, text) == parts.end()) parts.push_back(text);
  }
  return base::join(parts, "; ");
}

std::string loader_of(const LoaderFact& loader) {
  std::vector<std::string> parts;
  if (loader.num_workers) parts.push_back(std::to_string(*loader.num_workers) + " workers");
  if (loader.pin_memory) parts.emplace_back(*loader.pin_memory ? "pinned" : "not pinned");
  if (!loader.dataset.empty()) parts.push_back(loader.dataset);
  return base::join(parts, ", ");
}

bool trains(const model::TrainingProcess& process) {
  return process.role != model::TrainingProcess::Role::worker && !process.steps.empty();
}

bool mentions_recording(const std::string& text) {
  const auto words = base::lower(text);
  return base::contains(words, "cupti") || base::contains(words, "profil");
}

void once(std::vector<std::string>& list, const std::string& text) {
  if (!text.empty() && std::ranges::find(list, text) == list.end()) list.push_back(text);
}

}  // namespace

std::map<std::string, std::string> facts_table(const ProcessFacts& facts, const Steps& steps, const TrainedGpu& gpu) {
  std::map<std::string, std::string> table;
  const auto put = [&](const char* key, const std::string& value) {
    if (!value.empty()) table[key] = value;
  };
  if (const auto* model = facts.largest_model()) {
    put("model", model->wrapper.empty() ? model->class_name : model->class_name + " (" + model->wrapper + ")");
    put("parameters", in_short(static_cast<double>(model->parameters)));
    put("dtype", shares(model->dtypes));
    put("device", shares(model->devices));
  }
  put("gpu", gpu.name);
  put("torch", facts.process.torch);
  put("python", facts.process.python);
  put("optimizer", optimizers_of(facts));
  if (const auto* loader = facts.training_loader()) put("loader", loader_of(*loader));
  if (steps.samples > 0) put("batch", std::to_string(std::lround(steps.samples)));
  return table;
}

std::vector<model::FixState> fixes_of(const ProcessFacts& facts) {
  std::vector<model::FixState> fixes;
  for (const auto& fact : facts.fixes) {
    model::FixState state{fact.id, fact.state, fact.text, {}};
    for (const auto& own : facts.fix_overrides) {
      if (own.id == fact.id) state.overrode.push_back(own.what + " (" + place_of(own.site) + ")");
    }
    fixes.push_back(std::move(state));
  }
  return fixes;
}

std::vector<model::RankSummary> ranks_of(const model::Run& run) {
  std::vector<model::RankSummary> ranks;
  if (std::ranges::count_if(run.processes, trains) < 2) return ranks;
  for (const auto& process : run.processes) {
    if (!trains(process)) continue;
    const auto [steps, time] = measure_steps(process);
    if (!steps.known()) continue;
    ranks.push_back({process.rank, process.pid, steps.mean_ms(), steps.phase(HostPhase::data), time.busy_ms});
  }
  std::ranges::stable_sort(ranks, {}, &model::RankSummary::rank);
  return ranks;
}

std::vector<std::string> remarks_of(const model::TrainingProcess& trainer, const ProcessFacts& facts,
                                    const Steps& steps, const GpuTime& time) {
  std::vector<std::string> remarks;
  for (const auto& trouble : trainer.troubles) once(remarks, trouble.text);
  if (facts.agent && !facts.agent->off.empty()) once(remarks, "the agent turned itself off: " + facts.agent->off);
  std::uint64_t lost = 0;
  for (const auto& window : trainer.windows) lost += window.lost;
  if (lost > 0) once(remarks, std::to_string(lost) + " records of the windows found no room");
  if (trainer.records_dropped > 0) {
    once(remarks, std::to_string(trainer.records_dropped) + " records did not fit into the spool");
  }
  if (steps.disturbed)
    once(remarks, "the run was too short for undisturbed steps: its times include the cost of recording");
  if (time.known() && time.from_causes)
    once(remarks, "kernel times come from a window that recorded calls too: they may be long");
  if (time.known() && std::ranges::none_of(trainer.windows, [](const auto& window) {
        return window.mode == model::RecordedWindow::Mode::causes;
      })) {
    once(remarks, "the run ended before calls and lines were recorded: idle time has no cause");
  }
  return remarks;
}

std::string no_records_reason(const model::TrainingProcess& trainer, const ProcessFacts& facts, const GpuTime& time) {
  if (time.known()) return {};
  for (const auto& trouble : trainer.troubles) {
    if (mentions_recording(trouble.text)) return trouble.text;
  }
  const bool known = !facts.models.empty() || facts.input || facts.device_check;
  if (known && !facts.on_gpu()) return "the training runs on the CPU";
  if (trainer.windows.empty()) return "the run ended before a window could be recorded";
  return known ? "no kernel was recorded" : "no GPU was seen";
}

}  // namespace fullwatt::explain
