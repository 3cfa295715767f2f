// CPUs: taken by others, rationed, or used by too many or too few threads.

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/machine_facts.hpp"
#include "fullwatt/explain/one_thread.hpp"
#include "fullwatt/explain/rules/rule.hpp"

namespace fullwatt::explain {
namespace {

/// What of a step the host makes the GPU wait for; without a GPU, all of it.
double host_ms(const Case& examined) {
  if (!examined.evidence.gpu_time.known()) return examined.step_ms();
  double sum = 0;
  for (const auto cause : {cause::kDataWait, cause::kPython, cause::kLaunchBound, cause::kGarbage})
    sum += examined.charged(cause);
  return sum;
}

Match priced(const Case& examined, double part) {
  const double host = host_ms(examined);
  Match match;
  match.costs(host, host * part, examined.step_ms());
  return match;
}

Matches contention(const Case& examined) {
  const auto load = host_load(examined.evidence);
  const auto cpus = online_cpus(examined.evidence.run);
  if (!load.known || !cpus || load.busy < 0.9 * *cpus) return {};
  const double others = load.busy - load.training;
  if (others < 0.25 * *cpus) return {};
  auto match = priced(examined, 1 - keeps("cpu-contention"));
  match.fact("value", fmt::format("{:.1f}", others)).fact("cpus", number_text(*cpus));
  match.saw("CPUs busy",
            fmt::format("{:.1f} of {}, {:.1f} for the training", load.busy, number_text(*cpus), load.training),
            "/proc");
  if (load.stolen >= 0.1) match.saw("taken by the hypervisor", fmt::format("{:.1f} CPUs", load.stolen), "/proc/stat");
  if (load.pressure > 0) match.saw("CPU pressure", percent(load.pressure) + " %", "/proc/pressure/cpu");
  return {match};
}

/// Where the loader is what waits, its own rule tells it.
Matches quota(const Case& examined) {
  const auto load = host_load(examined.evidence);
  const bool loader = examined.loader.workers > 0 && examined.share(examined.loader.wait_ms) >= 0.02;
  if (!load.known || load.throttled < 0.03 || loader) return {};
  auto match = priced(examined, load.throttled);
  match.fact("value", percent(load.throttled))
      .fact("limit", number_text(allowed_cpus(examined.evidence.run).value_or(0)));
  return {match.saw("stopped by the CPU quota", percent(load.throttled) + " % of the time", "cpu.stat")};
}

double processes_here(const Case& examined) {
  const auto trains = [](const model::TrainingProcess& process) {
    return process.role == model::TrainingProcess::Role::trainer;
  };
  return static_cast<double>(std::ranges::count_if(examined.evidence.run.processes, trains));
}

std::optional<double> threads_of(const Case& examined) {
  const auto text = examined.facts().setting("threads");
  const auto count = text ? base::number<int>(*text) : std::nullopt;
  return count ? std::optional<double>(*count) : std::nullopt;
}

/// Loader workers compute with one thread each, unless OMP_NUM_THREADS tells other libraries more.
Matches oversubscribed(const Case& examined) {
  const auto threads = threads_of(examined);
  const auto cpus = allowed_cpus(examined.evidence.run);
  const auto load = host_load(examined.evidence);
  if (!threads || !cpus || !load.known) return {};
  const auto variable = base::number<int>(examined.facts().variable("OMP_NUM_THREADS").value_or(""));
  const double of_worker = variable ? *variable : 1;
  const double workers = examined.loader.workers;
  const double trainers = std::max(1.0, processes_here(examined));
  const double total = trainers * (*threads + workers * of_worker);
  const bool many = (trainers > 1 && *threads > 1) || (workers > 0 && of_worker > 1);
  const bool filled = many && load.training >= 0.85 * *cpus;
  const bool alone = *threads >= 2 * *cpus;  // threads that wait for each other may leave the CPUs idle
  if (total < 2 * *cpus || !(filled || alone)) return {};
  auto match = priced(examined, 1 - keeps("threads-oversubscribed"));
  match.near({set_at(examined.source, {"set_num_threads"})});
  const double processes = trainers * (1 + (of_worker > 1 ? workers : 0));
  match.fact("count", number_text(total)).fact("cpus", number_text(*cpus)).fact("workers", number_text(processes));
  match.fact("value", number_text(std::max(*threads, of_worker)))
      .fact("expected", number_text(std::max(1.0, std::floor(*cpus / processes))));
  return {match.saw("torch.get_num_threads()", number_text(*threads), "settings in force")
              .saw("CPUs of the training", fmt::format("{:.1f} of {}", load.training, number_text(*cpus)), "/proc")};
}

double computing_ms(const Case& examined) {
  double sum = 0;
  for (const auto cause : {cause::kForward, cause::kBackward, cause::kOptimizer}) sum += examined.charged(cause);
  return sum;
}

/// On full CPUs a thread that shares an operation with others waits until the last of them has had one. It is more than
/// the operations can take that tells such waiting.
Matches threads_wait(const Case& examined) {
  const auto threads = threads_of(examined);
  const auto alone = one_thread(examined.facts());
  const auto load = host_load(examined.evidence);
  const auto cpus = online_cpus(examined.evidence.run);
  if (examined.on_gpu() || !threads || *threads < 2 || !alone || alone->beginning_ms <= 0) return {};
  if (!load.known || !cpus || load.busy < 0.9 * *cpus) return {};
  const bool others = load.busy - load.training >= 0.25 * *cpus;
  if (!others && examined.loader.workers == 0) return {};
  const double computing = computing_ms(examined);
  const double enough = alone->working_ms + alone->beginning_ms;
  if (computing < 2 * enough) return {};
  Match match;
  match.costs(computing - enough, computing - enough, examined.step_ms());
  match.fact("value", number_text(*threads)).fact("expected", "1").fact("limit", ms_text(enough));
  match.fact("busy", ms_text(computing));
  return {match.saw("operations of a step", number_text(examined.facts().flops->operations), "counted in one")
              .saw("CPUs busy", fmt::format("{:.1f} of {}", load.busy, number_text(*cpus)), "/proc")};
}

/// Only a training on the CPU gains by more threads.
Matches too_few(const Case& examined, bool by_variable) {
  const auto threads = threads_of(examined);
  const auto cpus = allowed_cpus(examined.evidence.run);
  const auto load = host_load(examined.evidence);
  const bool variable = examined.facts().variable("OMP_NUM_THREADS") == "1";
  if (examined.on_gpu() || !threads || !cpus || variable != by_variable || processes_here(examined) > 1) return {};
  if (*threads > *cpus / 2 || (load.known && load.busy > 0.7 * *cpus)) return {};
  const double computing = computing_ms(examined);
  Match match;
  match.costs(computing, computing * (1 - keeps("threads-too-few")), examined.step_ms());
  match.fact("value", number_text(*threads)).fact("cpus", number_text(*cpus)).fact("expected", number_text(*cpus));
  match.fact("count", number_text(std::max(0.0, *cpus - load.busy)));
  match.near({set_at(examined.source, {"set_num_threads"})});
  return {match.saw("torch.get_num_threads()", number_text(*threads), "settings in force")};
}

Matches threads_too_few(const Case& examined) {
  return too_few(examined, false);
}
Matches omp_one(const Case& examined) {
  auto matches = too_few(examined, true);
  for (auto& match : matches) match.severity = model::Severity::warning;
  return matches;
}

Matches one_core(const Case& examined) {
  const auto online = online_cpus(examined.evidence.run);
  if (!online || *online < 2 || base::number_list(examined.evidence.run.machine->host.system.cpus).size() != 1)
    return {};
  auto match = priced(examined, 0.3);
  match.fact("pid", std::to_string(examined.evidence.trainer->pid));
  return {match.saw("CPU affinity", examined.evidence.run.machine->host.system.cpus, "sched_getaffinity")};
}

Matches swapping(const Case& examined) {
  constexpr double kBytesPerSecond = 4e6;
  const auto load = host_load(examined.evidence);
  if (load.seconds <= 0 || load.swap_in_bytes / load.seconds < kBytesPerSecond) return {};
  auto match = priced(examined, 0.2);
  return {match.saw("read back from swap", fmt::format("{:.0f} MB/s", load.swap_in_bytes / load.seconds / 1e6),
                    "/proc/vmstat")};
}

constexpr std::array kRules{
    Rule{"cpu-contention", contention},
    Rule{"cpu-quota-throttles", quota},
    Rule{"threads-oversubscribed", oversubscribed},
    Rule{"threads-wait", threads_wait},
    Rule{"threads-too-few", threads_too_few},
    Rule{"omp-threads-one", omp_one},
    Rule{"cpu-affinity-one-core", one_core},
    Rule{"io-or-swap-bound", swapping},
};

}  // namespace

std::span<const Rule> host_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
