// Why the training waits for its data: exactly one of these, the nearest reason.

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "fullwatt/explain/machine_facts.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

enum class Reason { none, main_process, quota, too_many, disk, hand_over, collate, too_few, cpu, one_worker, bursts };

/// A wait that is worth a look: two per cent of the step.
constexpr double kLeastWait = 0.02;
constexpr double kFull = 0.85;

struct LoaderCase {
  LoaderWork work;
  HostLoad load;
  double cpus = 0;  ///< 0: not known
  double free = 0;  ///< CPUs that nobody uses
  const LoaderFact* loader = nullptr;
  bool has_room = false;       ///< CPUs for workers beside the training
  bool whole_batches = false;  ///< each item of the data set is one: putting "them" together only copies it
};

bool cpus_are_full(const LoaderCase& seen) {
  return seen.cpus > 0 && seen.free < std::max(0.5, 0.1 * seen.cpus);
}

LoaderCase look(const Case& examined) {
  LoaderCase seen;
  seen.work = examined.loader;
  seen.work.wait_ms = std::max(0.0, seen.work.wait_ms - restarts_ms(examined));  // they have a rule of their own
  seen.work.gain_ms = std::min(seen.work.gain_ms, seen.work.wait_ms);
  seen.load = host_load(examined.evidence);
  seen.cpus = allowed_cpus(examined.evidence.run).value_or(0);
  seen.loader = examined.facts().training_loader();
  seen.whole_batches = reads_whole_batches(examined);
  const double used =
      std::max(seen.load.training, seen.cpus > 0 ? std::min(seen.load.busy, seen.cpus) : seen.load.busy);
  seen.free = seen.load.known ? std::max(0.0, seen.cpus - used) : seen.cpus - seen.work.workers - 1;
  seen.has_room = seen.cpus != 1 && (examined.on_gpu() || !cpus_are_full(seen));
  return seen;
}

/// Waiting for the disk takes no CPU; neither does waiting for one, so that the CPUs must not be full.
bool disk_bound(const LoaderCase& seen) {
  const bool reads = seen.work.read_mb > 0.01 || seen.load.iowait > 0.2;
  return seen.work.known() && seen.work.cpu_share < 0.6 && reads && !cpus_are_full(seen);
}

/// Workers that have little to do, and still every batch is waited for: it is ready, and taking it over is what takes
/// long.
bool waits_for_hand_over(const LoaderWork& work) {
  constexpr double kIdleWorkers = 0.5;
  return work.known() && work.busy() < kIdleWorkers && work.slow_worker < 2 &&
         work.usual_wait_ms > 0.5 * work.wait_ms && work.usual_wait_ms < work.step_ms - work.supply_ms(work.workers);
}

/// Waiting for samples takes no CPU, so that workers can do it anywhere.
Reason reason_without_workers(const LoaderCase& seen) {
  constexpr double kComputing = 0.6;
  constexpr double kMuch = 0.2;  // of the step; a CPU has to make the batches, after all
  const auto& work = seen.work;
  if (seen.has_room || (work.known() && work.cpu_share < kComputing)) return Reason::main_process;
  return work.known() && work.wait_ms >= kMuch * work.step_ms ? Reason::cpu : Reason::none;
}

Reason reason(const LoaderCase& seen) {
  const auto& work = seen.work;
  if (seen.loader == nullptr || work.wait_ms < kLeastWait * work.step_ms) return Reason::none;
  if (work.workers == 0) return reason_without_workers(seen);
  if (seen.load.throttled >= 0.05) return Reason::quota;
  if (seen.cpus > 0 && work.workers > seen.cpus && cpus_are_full(seen)) return Reason::too_many;
  if (disk_bound(seen)) return Reason::disk;
  if (waits_for_hand_over(work)) return Reason::hand_over;
  if (work.collate_share >= 0.5 && !seen.whole_batches) return Reason::collate;
  if (!work.known()) return cpus_are_full(seen) ? Reason::cpu : Reason::too_few;
  if (work.busy() < kFull && work.slow_worker >= 2) return Reason::one_worker;
  if (work.busy() < kFull && work.slow_ratio >= 2) return Reason::bursts;
  return cpus_are_full(seen) ? Reason::cpu : Reason::too_few;
}

Match start(const Case& examined, const LoaderCase& seen, double gain) {
  Match match;
  match.at(seen.loader->site).costs(seen.work.wait_ms, gain, examined.step_ms());
  match.fact("workers", std::to_string(seen.work.workers));
  match.fact("cpus", number_text(seen.cpus)).fact("seconds", seconds_text(seen.work.batch_ms / 1e3));
  match.saw("waiting for data", ms_text(seen.work.wait_ms) + " ms of " + ms_text(examined.step_ms()) + " ms", "steps");
  match.saw("num_workers", std::to_string(seen.work.workers), place_of(seen.loader->site));
  if (seen.work.known()) {
    match.saw("one batch in one process",
              fmt::format("{} ms, {} % computing", ms_text(seen.work.batch_ms), percent(seen.work.cpu_share)),
              "loader");
  }
  if (seen.load.known)
    match.saw("CPUs busy", fmt::format("{:.1f} of {}", seen.load.busy, number_text(seen.cpus)), "/proc");
  return match;
}

/// Workers that so many CPUs have room for: waiting for a disk or a network takes none.
double workers_on(double cpus, const LoaderWork& work) {
  constexpr double kLeastComputing = 0.1;
  return cpus / (work.known() ? std::max(work.cpu_share, kLeastComputing) : 1);
}

/// As many workers as hide the data behind the rest of the step, at most what the CPUs allow.
double workers_needed(const LoaderCase& seen) {
  const auto& work = seen.work;
  const double rest = std::max(work.step_ms - work.gain_ms, 0.05 * work.step_ms);
  const double needed =
      work.known() ? std::ceil(work.batch_ms * work.batches_of_step / rest) + 1 : 2.0 * std::max(work.workers, 2);
  const double room =
      seen.cpus > 0 ? std::max(1.0, std::floor(work.workers + workers_on(std::max(seen.free, 1.0), work))) : needed;
  return std::clamp(needed, work.workers + 1.0, std::max(room, work.workers + 1.0));
}

/// A worker hands its batch over in shared memory, which costs this much: tiny batches are better made where they are
/// used.
constexpr double kHandOverMs = 0.3;

Matches workers_zero(const Case& examined) {
  const auto seen = look(examined);
  if (reason(seen) != Reason::main_process) return {};
  const double room = seen.cpus > 0 ? std::min(workers_on(std::max(seen.cpus - 1, 0.5), seen.work), 8.0) : 4;
  const double gain = seen.work.gain_with(std::max(1.0, room));
  auto match = start(examined, seen, gain - kHandOverMs * seen.work.batches_of_step);
  if (!examined.on_gpu()) match.severity = model::Severity::note;
  return {match.fact("expected", number_text(workers_needed(seen)))};
}

Matches quota(const Case& examined) {
  const auto seen = look(examined);
  if (reason(seen) != Reason::quota) return {};
  auto match = start(examined, seen, seen.load.throttled * seen.work.gain_ms);
  match.fact("limit", number_text(seen.cpus)).fact("count", std::to_string(seen.work.workers));
  return {match.saw("stopped by the CPU quota", percent(seen.load.throttled) + " % of the time", "cpu.stat")};
}

/// One worker for each CPU does the same work without hindering the others.
Matches too_many(const Case& examined) {
  const auto seen = look(examined);
  if (reason(seen) != Reason::too_many) return {};
  const double surplus = 1 - seen.cpus / seen.work.workers;
  auto match = start(examined, seen, 0.3 * surplus * seen.work.gain_ms);
  return {match.fact("count", std::to_string(seen.work.workers)).fact("limit", number_text(seen.cpus))};
}

Matches disk(const Case& examined) {
  const auto seen = look(examined);
  if (reason(seen) != Reason::disk) return {};
  auto match = start(examined, seen, seen.work.gain_ms);
  match.fact("value", percent(seen.work.cpu_share)).fact("count", number_text(seen.work.read_mb));
  return {match.saw("read from the disk", number_text(seen.work.read_mb) + " MB a batch", "loader")};
}

/// Pinning takes a batch over in a thread of its own. Without a GPU there is no such thread; handing memory over by
/// name instead of by descriptor then saves about half (2.1 ms became 1.1 ms for two tensors, on a CPU).
Matches hand_over(const Case& examined) {
  constexpr double kLeastHandOver = 0.05;
  const auto seen = look(examined);
  if (reason(seen) != Reason::hand_over || seen.work.wait_ms < kLeastHandOver * seen.work.step_ms) return {};
  auto match = start(examined, seen, examined.on_gpu() ? seen.work.gain_ms : 0.5 * seen.work.gain_ms);
  return {match.fact("share", percent(seen.work.busy()))
              .saw("waiting for the usual batch", ms_text(seen.work.usual_wait_ms) + " ms", "steps")};
}

Matches collate(const Case& examined) {
  const auto seen = look(examined);
  if (reason(seen) != Reason::collate) return {};
  auto match = start(examined, seen, std::min(seen.work.gain_ms, seen.work.step_ms * seen.work.collate_share));
  match.fact("value", percent(seen.work.collate_share)).fact("samples", number_text(seen.work.samples));
  match.fact("name", seen.loader->collate.empty() ? "collate_fn" : seen.loader->collate);
  match.fact("seconds", seconds_text(seen.work.batch_ms * seen.work.collate_share / 1e3));
  return {match};
}

Matches too_few(const Case& examined) {
  const auto seen = look(examined);
  if (reason(seen) != Reason::too_few) return {};
  const double wanted = workers_needed(seen);
  auto match = start(examined, seen, seen.work.gain_with(wanted));
  match.fact("value", percent(seen.work.known() ? seen.work.busy() : 1)).fact("expected", number_text(wanted));
  return {match.fact("count", number_text(std::max(0.0, seen.free)))};
}

Matches cpu_bound(const Case& examined) {
  const auto seen = look(examined);
  if (reason(seen) != Reason::cpu) return {};
  auto match = start(examined, seen, seen.work.gain_ms);
  if (!examined.on_gpu()) match.severity = model::Severity::note;
  match.fact("value", percent(seen.work.cpu_share)).fact("count", number_text(std::max(0.0, seen.cpus - seen.free)));
  return {match};
}

Matches one_worker(const Case& examined) {
  const auto seen = look(examined);
  if (reason(seen) != Reason::one_worker) return {};
  auto match = start(examined, seen, 0.5 * seen.work.gain_ms);
  return {match.fact("value", number_text(seen.work.slow_worker))};
}

Matches bursts(const Case& examined) {
  const auto seen = look(examined);
  if (reason(seen) != Reason::bursts) return {};
  auto match = start(examined, seen, 0.5 * seen.work.gain_ms);
  match.fact("value", std::to_string(seen.loader->prefetch_factor.value_or(2)));
  match.fact("share", percent(seen.work.busy())).fact("expected", number_text(seen.work.slow_ratio));
  return {match};
}

constexpr std::array kRules{
    Rule{"loader-workers-zero", workers_zero},   Rule{"cpu-quota-starves-loader", quota},
    Rule{"loader-workers-too-many", too_many},   Rule{"loader-disk-bound", disk},
    Rule{"loader-hand-over", hand_over},         Rule{"loader-collate-slow", collate},
    Rule{"loader-workers-too-few", too_few},     Rule{"loader-cpu-bound", cpu_bound},
    Rule{"loader-worker-imbalance", one_worker}, Rule{"loader-prefetch-small", bursts},
};

}  // namespace

std::span<const Rule> loader_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
