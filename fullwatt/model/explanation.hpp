#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/model/finding.hpp"
#include "fullwatt/model/run.hpp"

/// The answer of `explain(Run)`: where a training step's time went, what it would give to remove each cause, and what
/// was found.
namespace fullwatt::model {

/// One line of the user's code and its part of a step.
struct LineCost {
  Site site;
  double ms = 0;     ///< of a step
  std::string what;  ///< such as "GPU idle: waits for data", "runs Python", "blocks on the GPU"

  static void fields(auto& self, auto&& visit) {
    visit("site", self.site);
    visit("ms", self.ms);
    visit("what", self.what);
  }
};

/// One part of a step. All charged_ms of a breakdown sum to the step.
struct Cause {
  std::string id;         ///< kebab-case, such as data-wait, sync-drain, launch-bound, python, gpu-matmul; words in the
                          ///< catalogue's labels
  bool gpu_busy = false;  ///< the GPU worked in it
  bool explained = true;  ///< false: counts to the unexplained rest
  double charged_ms = 0;
  std::optional<double> gain_alone_ms;  ///< of a step, were it removed alone
  std::optional<double> gain_after_ms;  ///< … after those ranked before it
  std::vector<LineCost> lines;          ///< largest first

  static void fields(auto& self, auto&& visit) {
    visit("id", self.id);
    visit("gpu_busy", self.gpu_busy);
    visit("explained", self.explained);
    visit("charged_ms", self.charged_ms);
    visit("gain_alone_ms", self.gain_alone_ms);
    visit("gain_after_ms", self.gain_after_ms);
    visit("lines", self.lines);
  }
};

/// Kernels of one kind and precision.
struct KernelGroup {
  std::string kind;  ///< matmul, convolution, attention, elementwise, reduction, normalisation, optimizer, softmax,
                     ///< embedding, rnn, copy, communication, other
  std::string precision;  ///< fp32, tf32, fp16, bf16, fp8, int8, fp64; empty where the name does not tell
  bool tensor_cores = false;
  double ms = 0;        ///< of a step
  double count = 0;     ///< of a step
  std::string example;  ///< the longest one's name

  static void fields(auto& self, auto&& visit) {
    visit("kind", self.kind);
    visit("precision", self.precision);
    visit("tensor_cores", self.tensor_cores);
    visit("ms", self.ms);
    visit("count", self.count);
    visit("example", self.example);
  }
};

/// A distribution in short.
struct Spread {
  double median = 0;
  double mean = 0;
  double p05 = 0;
  double p95 = 0;
  std::uint64_t count = 0;

  static void fields(auto& self, auto&& visit) {
    visit("median", self.median);
    visit("mean", self.mean);
    visit("p05", self.p05);
    visit("p95", self.p95);
    visit("count", self.count);
  }
};

/// One resource against what the card can do (D6).
struct ResourceUse {
  std::string id;  ///< power, memory, compute, memory-bandwidth, pcie, gpu-busy, cpu
  std::optional<double> used;
  std::optional<double> limit;
  std::string unit;
  std::string reason;  ///< why there is no value; empty when there is one
  std::string source;  ///< where the limit comes from

  static void fields(auto& self, auto&& visit) {
    visit("id", self.id);
    visit("used", self.used);
    visit("limit", self.limit);
    visit("unit", self.unit);
    visit("reason", self.reason);
    visit("source", self.source);
  }
};

/// One setting as the configuration has it and as the program really runs (D5).
struct SettingRow {
  std::string name;         ///< canonical, such as loader.num_workers, cudnn.benchmark, amp
  std::string declared;     ///< empty when declared nowhere
  std::string declared_at;  ///< "config.yaml:12", "--workers"
  std::string in_force;     ///< empty when it cannot be told
  std::string in_force_at;  ///< "train.py:40", where that can be known
  bool differs = false;
  std::string remark;

  static void fields(auto& self, auto&& visit) {
    visit("name", self.name);
    visit("declared", self.declared);
    visit("declared_at", self.declared_at);
    visit("in_force", self.in_force);
    visit("in_force_at", self.in_force_at);
    visit("differs", self.differs);
    visit("remark", self.remark);
  }
};

/// What became of one fix of the plan that the run was given.
struct FixState {
  std::string id;
  std::string state;                  ///< waiting, in-force, refused, undone
  std::string text;                   ///< what is in force, or why it is not
  std::vector<std::string> overrode;  ///< settings of the program that the plan won over: "threads = 2 (train.py:7)"

  static void fields(auto& self, auto&& visit) {
    visit("id", self.id);
    visit("state", self.state);
    visit("text", self.text);
    visit("overrode", self.overrode);
  }
};

/// A point of the run's course.
struct TrendPoint {
  double at_s = 0;  ///< since the first step
  double step_ms = 0;
  double data_ms = 0;
  std::optional<double> power_w;
  std::optional<double> memory_gib;

  static void fields(auto& self, auto&& visit) {
    visit("at_s", self.at_s);
    visit("step_ms", self.step_ms);
    visit("data_ms", self.data_ms);
    visit("power_w", self.power_w);
    visit("memory_gib", self.memory_gib);
  }
};

/// A bar of the example step that reports draw. Lanes: host, gpu.
struct TimelineBar {
  std::string lane;
  double start_ms = 0;
  double length_ms = 0;
  std::string kind;  ///< a cause's or a kernel group's id
  std::string text;

  static void fields(auto& self, auto&& visit) {
    visit("lane", self.lane);
    visit("start_ms", self.start_ms);
    visit("length_ms", self.length_ms);
    visit("kind", self.kind);
    visit("text", self.text);
  }
};

/// Where the time between the steps went: evaluation, checkpoints. Never part of a step.
struct BetweenSteps {
  std::string id;  ///< evaluation, checkpoint, first-steps, fullwatt
  double seconds = 0;
  double share = 0;  ///< of the run since the first step

  static void fields(auto& self, auto&& visit) {
    visit("id", self.id);
    visit("seconds", self.seconds);
    visit("share", self.share);
  }
};

/// One rank of several.
struct RankSummary {
  int rank = 0;
  int pid = 0;
  double step_ms = 0;
  double data_ms = 0;
  double busy_ms = 0;

  static void fields(auto& self, auto&& visit) {
    visit("rank", self.rank);
    visit("pid", self.pid);
    visit("step_ms", self.step_ms);
    visit("data_ms", self.data_ms);
    visit("busy_ms", self.busy_ms);
  }
};

struct Explanation {
  static constexpr int kSchemaVersion = 1;

  RunInfo info;
  std::string verdict;         ///< id of the first finding; empty when there is nothing to gain
  bool has_gpu = false;        ///< kernels were recorded, or the training is known to run on a GPU
  std::string no_gpu_records;  ///< why there are no kernel times; empty when there are
  std::uint64_t steps = 0;
  Spread step_ms;  ///< of plain steps
  std::optional<double> samples_per_step;
  std::optional<double> samples_per_second;
  std::optional<double> gpu_busy_ms;  ///< of a step
  double unexplained_ms = 0;
  std::optional<double> explained_idle_share;  ///< of the idle milliseconds, 0 to 1
  std::vector<Cause> causes;                   ///< by charged_ms
  std::vector<KernelGroup> kernels;            ///< by ms
  std::vector<LineCost> lines;                 ///< every line that costs, by ms
  std::vector<Finding> findings;               ///< by gain
  std::vector<ResourceUse> resources;
  std::vector<SettingRow> settings;
  std::vector<FixState> fixes;  ///< in the plan's order; empty without one
  std::vector<TrendPoint> trend;
  std::vector<TimelineBar> example_step;
  double example_step_ms = 0;
  std::vector<BetweenSteps> between;
  std::vector<RankSummary> ranks;
  std::map<std::string, std::string>
      facts;                      ///< parameters, dtype, device, torch, gpu, optimizer, batch …: shown as a table
  double overhead_steady_us = 0;  ///< fullwatt's own cost of a steady step
  double overhead_share = 0;      ///< of the whole run, windows included
  std::optional<double> epoch_left_s;
  std::optional<double> energy_kwh;
  std::optional<double> energy_cost;
  std::optional<double> ceiling_ms;  ///< a step with a perfect loader, measured by --ceiling
  std::optional<double> padding_ms;  ///< a step's wait for batches of several sizes, were their samples in memory
  std::vector<std::string> remarks;  ///< what could not be done, and why

  const Finding* find(std::string_view id) const;
  static void fields(auto& self, auto&& visit) {
    visit("run", self.info);
    visit("verdict", self.verdict);
    visit("has_gpu", self.has_gpu);
    visit("no_gpu_records", self.no_gpu_records);
    visit("steps", self.steps);
    visit("step_ms", self.step_ms);
    visit("samples_per_step", self.samples_per_step);
    visit("samples_per_second", self.samples_per_second);
    visit("gpu_busy_ms", self.gpu_busy_ms);
    visit("unexplained_ms", self.unexplained_ms);
    visit("explained_idle_share", self.explained_idle_share);
    visit("causes", self.causes);
    visit("kernels", self.kernels);
    visit("lines", self.lines);
    visit("findings", self.findings);
    visit("resources", self.resources);
    visit("settings", self.settings);
    visit("fixes", self.fixes);
    visit("trend", self.trend);
    visit("example_step", self.example_step);
    visit("example_step_ms", self.example_step_ms);
    visit("between", self.between);
    visit("ranks", self.ranks);
    visit("facts", self.facts);
    visit("overhead_steady_us", self.overhead_steady_us);
    visit("overhead_share", self.overhead_share);
    visit("epoch_left_s", self.epoch_left_s);
    visit("energy_kwh", self.energy_kwh);
    visit("energy_cost", self.energy_cost);
    visit("ceiling_ms", self.ceiling_ms);
    visit("padding_ms", self.padding_ms);
    visit("remarks", self.remarks);
  }
};

}  // namespace fullwatt::model
