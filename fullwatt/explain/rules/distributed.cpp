// Several GPUs: who waits for whom, and how gradients travel.

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "fullwatt/explain/recorded_causes.hpp"
#include "fullwatt/explain/rules/kernel_facts.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

/// A rank's own work of a step: what it computes, without waiting for others.
struct RankWork {
  int rank = 0;
  double computing_ms = 0;
  double data_ms = 0;
  model::Site line;  ///< where its host works longest, outside of backward pass and optimiser
};

/// NCCL's kernels spin while they wait, so that they do not count.
double kernel_ms(const GpuTime& time) {
  double sum = 0;
  for (const auto& kernel : time.kernels) sum += kernel.kind.kind == "communication" ? 0 : kernel.ms;
  return sum;
}

/// What the host does by itself, by line. Ranks wait for each other in the backward pass, or where they wait for the
/// GPU.
std::map<std::uint32_t, double> host_work(const RecordedCauses& causes) {
  std::map<std::uint32_t, double> by_line;
  for (const auto& window : causes.windows) {
    for (const auto& segment : window.host) {
      if (segment.phase == HostPhase::rest && !segment.blocks)
        by_line[segment.line] += own_ms(segment) / causes.steps();
    }
  }
  return by_line;
}

RankWork work_of(const model::TrainingProcess& process, const ProcessFacts& facts, const Steps& steps) {
  RankWork work{process.rank, 0, steps.phase(HostPhase::data), {}};
  const auto time = measure_gpu_time(process, steps);
  const auto causes = read_causes(process, facts, steps, time.device);
  const auto by_line = host_work(causes);
  double host = 0;
  for (const auto& [line, ms] : by_line) host += ms;
  if (by_line.empty()) host = time.known() ? 0 : steps.phase(HostPhase::rest);
  work.computing_ms = std::max(kernel_ms(time), host);
  const auto longest = std::ranges::max_element(by_line, {}, [](const auto& item) { return item.second; });
  if (longest != by_line.end()) work.line = causes.sites.site(longest->first);
  return work;
}

std::vector<RankWork> ranks(const Case& examined) {
  std::vector<RankWork> all;
  const auto& processes = examined.evidence.run.processes;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    if (processes[i].role != model::TrainingProcess::Role::trainer || processes[i].step_count == 0) continue;
    const auto steps = find_steps(processes[i]);
    if (steps.known()) all.push_back(work_of(processes[i], examined.evidence.all_facts[i], steps));
  }
  return all;
}

/// The rank whose value stands out, and by how much over the median of the others.
struct Outlier {
  RankWork worst;
  double value = 0;
  double usual = 0;
};

std::optional<Outlier> slowest(const std::vector<RankWork>& all, double RankWork::* value) {
  if (all.size() < 2) return std::nullopt;
  const auto worst = std::ranges::max_element(all, {}, value);
  std::vector<double> others;
  for (const auto& rank : all) {
    if (&rank != &*worst) others.push_back(rank.*value);
  }
  return Outlier{*worst, (*worst).*value, spread_of(others).median};
}

Matches straggler(const Case& examined, double RankWork::* value, std::string_view what) {
  const auto found = slowest(ranks(examined), value);
  if (!found || found->value < 1.1 * found->usual) return {};
  const double more = found->value - found->usual;
  if (examined.share(more) < 0.05) return {};
  Match match;
  if (value == &RankWork::computing_ms) match.near({found->worst.line});
  match.costs(more, more, examined.step_ms());
  match.fact("rank", std::to_string(found->worst.rank))
      .fact("value", ms_text(found->value))
      .fact("expected", ms_text(found->usual));
  return {
      match.saw(fmt::format("{} of rank {}", what, found->worst.rank), ms_text(found->value) + " ms of a step", "steps")
          .saw("median of the others", ms_text(found->usual) + " ms", "steps")};
}

Matches slow_rank(const Case& examined) {
  return straggler(examined, &RankWork::computing_ms, "computing");
}
Matches slow_data(const Case& examined) {
  return straggler(examined, &RankWork::data_ms, "waiting for data");
}

Matches data_parallel(const Case& examined) {
  const auto& fact = examined.facts().data_parallel;
  if (!fact || fact->devices.size() < 2) return {};
  const double gain = examined.step_ms() * (1 - keeps("data-parallel-used"));
  Match match;
  match.at(fact->site).costs(gain, gain, examined.step_ms()).fact("count", std::to_string(fact->devices.size()));
  return {match.saw("nn.DataParallel", fmt::format("{} GPUs", fact->devices.size()), place_of(fact->site))};
}

/// The GPU waits in the backward pass, where gradients are exchanged.
Matches backend(const Case& examined) {
  const auto& fact = examined.facts().distributed;
  if (!fact || fact->world_size < 2 || fact->backend.find("nccl") != std::string::npos || !examined.on_gpu()) return {};
  double waiting = 0;
  for (const auto& charge : examined.evidence.attribution.charges) {
    if (charge.phase == HostPhase::backward && !charge.gpu_busy) waiting += charge.ms;
  }
  Match match;
  match.costs(waiting, waiting * (1 - keeps("backend-not-nccl")), examined.step_ms()).fact("value", fact->backend);
  return {match.saw("backend", fact->backend, "torch.distributed")};
}

Matches exposed(const Case& examined) {
  const double charged = examined.charged(cause::kCommunication);
  if (examined.share(charged) < 0.05) return {};
  Match match;
  match.costs(charged, examined.gain(Change::scaled("communication", "", keeps("communication-exposed"))),
              examined.step_ms());
  return {match.saw("NCCL kernels alone on the GPU", ms_text(charged) + " ms of a step", "CUPTI")};
}

Matches unused_parameters(const Case& examined) {
  const auto& fact = examined.facts().distributed;
  if (!fact || fact->find_unused_parameters != true) return {};
  Match match;
  match.charged_ms = (1 - keeps("find-unused-parameters-on")) * examined.evidence.steps.phase(HostPhase::backward);
  return {match.saw("find_unused_parameters", "true", "DistributedDataParallel")};
}

constexpr std::array kRules{
    Rule{"rank-straggler", slow_rank},         Rule{"rank-data-straggler", slow_data},
    Rule{"data-parallel-used", data_parallel}, Rule{"backend-not-nccl", backend},
    Rule{"communication-exposed", exposed},    Rule{"find-unused-parameters-on", unused_parameters},
};

}  // namespace

std::span<const Rule> distributed_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
