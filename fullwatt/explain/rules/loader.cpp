// Why the training waits for its data: the nearest reason, and where that gives little, the one behind it.

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/machine_facts.hpp"
#include "fullwatt/explain/rules/lines.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

enum class Reason {
  none,
  sampler,
  on_gpu,
  main_process,
  quota,
  too_many,
  disk,
  hand_over,
  collate,
  too_few,
  cpu,
  one_worker,
  bursts
};

/// A wait that is worth a look: two per cent of the step.
constexpr double kLeastWait = 0.02;
constexpr double kFull = 0.85;
constexpr double kLeastCpus = 0.5;

struct LoaderCase {
  LoaderWork work;
  HostLoad load;
  double cpus = 0;        ///< 0: not known
  double free = 0;        ///< CPUs that nobody uses
  double ours = 0;        ///< CPUs that others leave to the training
  double sampler_ms = 0;  ///< of a step, choosing samples, which no worker does
  double rest_cpus = 1;   ///< that the rest of the step uses
  const LoaderFact* loader = nullptr;
  bool crowded_out = false;  ///< workers with little to do that are waited for a little, as on every full CPU
  bool loads_onto_gpu = false;
  bool from_memory = false;    ///< the sample cache gives the batches, and the loader's own workers nothing
  bool whole_batches = false;  ///< each item of the data set is one: putting "them" together only copies it
};

bool cpus_are_full(const LoaderCase& seen) {
  return seen.cpus > 0 && seen.free < std::max(0.5, 0.1 * seen.cpus);
}

/// What the training process does for a batch beside making it: without workers what is left of the wait, with them
/// what is seen at the lines of a sampler.
double choosing_ms(const Case& examined, const LoaderWork& work) {
  if (work.workers == 0) return work.known() ? std::max(0.0, work.wait_ms - work.batch_ms * work.batches_of_step) : 0;
  double ms = 0;
  for (const auto& line : lines_of_cause(examined, cause::kDataWait)) {
    if (line.site.function == "__iter__") ms += line.ms;
  }
  return ms;
}

bool have_idle_workers(const LoaderWork& work) {
  return work.known() && work.busy() < 0.5;
}

/// Without a GPU the training keeps its workers from the CPUs now and then, which nothing mends.
double least_hand_over(const Case& examined) {
  return examined.on_gpu() ? 0.05 : 0.1;
}

LoaderCase look(const Case& examined) {
  LoaderCase seen;
  seen.work = examined.loader;
  seen.work.wait_ms = std::max(0.0, seen.work.wait_ms - restarts_ms(examined));  // they have a rule of their own
  seen.work.gain_ms = std::min(seen.work.gain_ms, seen.work.wait_ms);
  seen.load = host_load(examined.evidence);
  seen.cpus = allowed_cpus(examined.evidence.run).value_or(0);
  seen.loader = examined.facts().training_loader();
  seen.from_memory = examined.facts().has_in_force("sample-cache");
  seen.loads_onto_gpu = examined.facts().loads_onto_gpu();
  seen.whole_batches = reads_whole_batches(examined);
  const double used =
      std::max(seen.load.training, seen.cpus > 0 ? std::min(seen.load.busy, seen.cpus) : seen.load.busy);
  seen.free = seen.load.known ? std::max(0.0, seen.cpus - used) : seen.cpus - seen.work.workers - 1;
  seen.ours = std::max(kLeastCpus, seen.cpus - (seen.load.known ? used - seen.load.training : 0));
  seen.sampler_ms = choosing_ms(examined, seen.work);
  seen.crowded_out = !examined.on_gpu() && seen.work.workers > 0 && have_idle_workers(seen.work) &&
                     seen.work.wait_ms < least_hand_over(examined) * seen.work.step_ms;
  seen.rest_cpus = examined.on_gpu() ? 1 : std::max(1.0, seen.cpus);
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
  return have_idle_workers(work) && work.slow_worker < 2 && work.usual_wait_ms > 0.5 * work.wait_ms &&
         work.usual_wait_ms < work.step_ms - work.supply_ms(work.workers);
}

/// Waiting for samples takes no CPU, so that workers can do it anywhere.
bool computes(const LoaderWork& work) {
  constexpr double kComputing = 0.6;
  return !work.known() || work.cpu_share >= kComputing;
}

/// Workers that so many CPUs have room for: waiting for a disk or a network takes none.
double workers_on(double cpus, const LoaderWork& work) {
  constexpr double kLeastComputing = 0.1;
  return cpus / (work.known() ? std::max(work.cpu_share, kLeastComputing) : 1);
}

/// The step of a training without workers, had it so many: as the rest of it allows, as they deliver, and as the CPUs
/// can do the work of both.
double step_with_workers(const LoaderCase& seen, double count) {
  const auto& work = seen.work;
  const double rest = std::max(0.0, work.step_ms - work.gain_ms) + seen.sampler_ms;
  if (!work.known()) return rest;
  double computing = work.batch_ms * work.batches_of_step * work.cpu_share + rest * seen.rest_cpus;
  if (seen.load.known) computing = std::min(computing, seen.load.training * work.step_ms);
  return std::max({rest, work.supply_ms(count), seen.cpus > 0 ? computing / seen.ours : 0});
}

/// What the first workers would give, as many as there are CPUs for them.
double gain_of_first_workers(const LoaderCase& seen) {
  constexpr double kHandOverMs = 0.3;  // of a batch, in shared memory: tiny ones are better made where they are used
  const double room = seen.cpus > 0 ? std::clamp(std::round(workers_on(seen.ours, seen.work)), 1.0, 8.0) : 4;
  const double gain = seen.work.step_ms - step_with_workers(seen, room);
  return std::clamp(gain, 0.0, seen.work.gain_ms) - kHandOverMs * seen.work.batches_of_step;
}

bool workers_pay(const LoaderCase& seen) {
  constexpr double kLeastGain = 0.02;  // of the step
  return gain_of_first_workers(seen) >= kLeastGain * seen.work.step_ms;
}

bool collates(const LoaderCase& seen) {
  return seen.work.collate_share >= 0.5 && !seen.whole_batches;
}

/// Even with workers the CPUs have too much to do: what each sample takes has to become less.
bool is_too_much_work(const LoaderCase& seen) {
  constexpr double kMuch = 0.2;  // of the step; a CPU has to make the batches, after all
  const auto& work = seen.work;
  if (!work.known() || !computes(work) || work.wait_ms < kMuch * work.step_ms) return false;
  const double enough = collates(seen) ? 0.8 : 1.0 / 3;  // slow collating is mended where it stands
  return !workers_pay(seen) || gain_of_first_workers(seen) < enough * work.gain_ms;
}

Reason reason_without_workers(const LoaderCase& seen) {
  if (seen.loads_onto_gpu) return Reason::on_gpu;
  if (workers_pay(seen)) return Reason::main_process;
  if (!is_too_much_work(seen)) return Reason::none;
  return collates(seen) ? Reason::collate : Reason::cpu;
}

Reason reason(const LoaderCase& seen) {
  const auto& work = seen.work;
  if (seen.loader == nullptr || work.wait_ms < kLeastWait * work.step_ms) return Reason::none;
  constexpr double kLeastSampler = 0.1;  // of the step; PyTorch's own samplers take some microseconds
  if (seen.sampler_ms >= std::max(0.5 * work.wait_ms, kLeastSampler * work.step_ms)) return Reason::sampler;
  if (seen.from_memory) return Reason::none;
  if (work.workers == 0) return reason_without_workers(seen);
  if (seen.load.throttled >= 0.05) return Reason::quota;
  if (seen.cpus > 0 && work.workers > seen.cpus && cpus_are_full(seen)) return Reason::too_many;
  if (seen.crowded_out) return Reason::none;
  if (disk_bound(seen)) return Reason::disk;
  if (waits_for_hand_over(work)) return Reason::hand_over;
  if (collates(seen)) return Reason::collate;
  if (!work.known()) return cpus_are_full(seen) ? Reason::cpu : Reason::too_few;
  if (work.busy() < kFull && work.slow_worker >= 2) return Reason::one_worker;
  if (work.busy() < kFull && work.slow_ratio >= 2) return Reason::bursts;
  return cpus_are_full(seen) ? Reason::cpu : Reason::too_few;
}

/// Without workers the samples are made where lines are seen.
void see_data_line(const Case& examined, Match& match) {
  const auto lines = lines_of_cause(examined, cause::kDataWait);
  if (lines.empty()) return;
  const auto text = source_line(examined.evidence.run, lines.front().site);
  match.saw(text.empty() ? "most of it" : base::printable(text, 120), ms_text(lines.front().ms) + " ms",
            place_of(lines.front().site));
}

/// The work itself is the reason, alone or behind missing workers.
bool has_too_much_work(const LoaderCase& seen) {
  if (seen.work.workers > 0) return false;
  const auto why = reason(seen);
  return (why == Reason::main_process || why == Reason::collate || why == Reason::cpu) && is_too_much_work(seen);
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
  if (seen.work.workers == 0) see_data_line(examined, match);
  if (seen.load.known)
    match.saw("CPUs busy", fmt::format("{:.1f} of {}", seen.load.busy, number_text(seen.cpus)), "/proc");
  return match;
}

/// As many workers as hide the data behind the rest of the step, at most what the CPUs allow.
double workers_needed(const LoaderCase& seen) {
  const auto& work = seen.work;
  const double rest = std::max(work.step_ms - work.gain_ms, 0.05 * work.step_ms);
  const double needed =
      work.known() ? std::ceil(work.batch_ms * work.batches_of_step / rest) + 1 : 2.0 * std::max(work.workers, 2);
  const double free = work.workers > 0 ? std::max(seen.free, 1.0) : seen.ours;
  const double room = seen.cpus > 0 ? std::max(1.0, std::round(work.workers + workers_on(free, work))) : needed;
  return std::clamp(needed, work.workers + 1.0, std::max(room, work.workers + 1.0));
}

Matches workers_zero(const Case& examined) {
  const auto seen = look(examined);
  if (reason(seen) != Reason::main_process) return {};
  auto match = start(examined, seen, gain_of_first_workers(seen));
  if (!examined.on_gpu()) match.severity = model::Severity::note;
  return {match.fact("expected", number_text(workers_needed(seen)))};
}

/// What is on the GPU as a whole can be picked there by one kernel for a batch.
Matches on_gpu(const Case& examined) {
  const auto seen = look(examined);
  if (reason(seen) != Reason::on_gpu) return {};
  return {start(examined, seen, seen.work.gain_ms)
              .saw("batches come from the loader on", examined.facts().batch_device, "loader")};
}

Matches quota(const Case& examined) {
  const auto seen = look(examined);
  if (reason(seen) != Reason::quota) return {};
  auto match = start(examined, seen, seen.load.throttled * seen.work.gain_ms);
  match.fact("limit", number_text(seen.cpus)).fact("count", std::to_string(seen.work.workers));
  return {match.saw("stopped by the CPU quota", percent(seen.load.throttled) + " % of the time", "cpu.stat")};
}

/// The wait that remains when batches are always there, since samples are chosen in the training process.
Matches sampler(const Case& examined) {
  const auto seen = look(examined);
  if (reason(seen) != Reason::sampler) return {};
  auto match = start(examined, seen, std::min(seen.sampler_ms, seen.work.gain_ms));
  match.near({main_line(examined, cause::kDataWait), seen.loader->site});
  return {match.saw("choosing the samples", ms_text(seen.sampler_ms) + " ms", match.facts["place"])};
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
  const auto seen = look(examined);
  if (reason(seen) != Reason::hand_over || seen.work.wait_ms < least_hand_over(examined) * seen.work.step_ms) return {};
  auto match = start(examined, seen, examined.on_gpu() ? seen.work.gain_ms : 0.5 * seen.work.gain_ms);
  return {match.fact("share", percent(seen.work.busy()))
              .saw("waiting for the usual batch", ms_text(seen.work.usual_wait_ms) + " ms", "steps")};
}

Matches collate(const Case& examined) {
  const auto seen = look(examined);
  if (reason(seen) != Reason::collate && !(has_too_much_work(seen) && collates(seen))) return {};
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
  if (seen.work.workers > 0 ? reason(seen) != Reason::cpu : !has_too_much_work(seen) || collates(seen)) return {};
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
    Rule{"loader-sampler-slow", sampler},        Rule{"loader-workers-zero", workers_zero},
    Rule{"loader-samples-on-gpu", on_gpu},       Rule{"cpu-quota-starves-loader", quota},
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
