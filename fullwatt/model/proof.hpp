#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/plan.hpp"

/// The answer of `judge(Trials)`: whether a plan is faster, and whether the training is unharmed.
namespace fullwatt::model {

/// What a GPU draws without and with a fix.
struct TurnWatts {
  double without = 0;
  double with = 0;
};

/// A fix that was turned on and off while the program trained, on top of those that had paid before.
struct Turn {
  std::string id;  ///< empty: turns cannot be taken in this training
  bool kept = false;
  std::vector<double> without_ms;  ///< of a step, pair by pair; none when it broke the program
  std::vector<double> with_ms;
  double once_s = 0;  ///< what its first use took, such as compiling
  std::optional<TurnWatts> watts;
};

/// How hard the GPU worked during the steps that were measured, as the driver counts it. What is not known is empty.
struct GpuWork {
  std::optional<double> watts;
  std::optional<double> utilization_percent;
  std::optional<double> memory_bytes;  ///< at most, of the whole card

  bool is_known() const { return watts || utilization_percent || memory_bytes; }

  static void fields(auto& self, auto&& visit) {
    visit("watts", self.watts);
    visit("utilization_percent", self.utilization_percent);
    visit("memory_bytes", self.memory_bytes);
  }
};

/// What a start took of the memory of the card that it trained on, and what was left to it.
struct CardMemory {
  double training_bytes = 0;  ///< in tensors, at most, outside evaluations
  double peak_bytes = 0;      ///< the same with them
  double held_bytes = 0;      ///< by torch for these, with the gaps between them
  double limit_bytes = 0;     ///< that torch may hold: what others leave of the card, or less where the program says so
  bool ran_out = false;       ///< at least once, whether the program went on or not
};

/// How long the samples of a training are, as far as a start could read them in time.
struct SampleLengths {
  bool varies = false;
  std::uint64_t read = 0;
  std::uint64_t of = 0;                ///< that an epoch has
  std::vector<std::uint64_t> longest;  ///< their indices, where these are numbers
};

/// One start of the program with a plan, and what was measured of it.
struct Trial {
  Plan plan;
  int seed_offset = 0;
  std::string failure;          ///< why there is no measurement; empty when there is one
  std::vector<double> step_ms;  ///< steady steps, in order
  std::vector<double> losses;   ///< by step, where they were asked for
  std::vector<FixState> fixes;
  std::vector<Turn> turns;               ///< of a start in which fixes took turns
  PlanTarget target;                     ///< what a plan from here is made for
  std::map<std::string, double> once_s;  ///< by fix: what it takes at the beginning
  double samples_per_step = 0;
  GpuWork gpu;
  std::optional<CardMemory> memory;
  std::optional<SampleLengths> lengths;  ///< where they were asked for
  double host_memory_bytes = 0;          ///< at most, of the training's processes
  double seconds = 0;                    ///< of the whole start
  std::string folder;                    ///< its run folder
};

/// How many times as fast, with the interval that holds it in 95 of 100 cases.
struct SpeedProof {
  double speedup = 1;
  double low = 0;
  double high = 0;
  int pairs = 0;

  bool is_faster() const { return pairs >= 2 && low > 1; }

  static void fields(auto& self, auto&& visit) {
    visit("speedup", self.speedup);
    visit("low", self.low);
    visit("high", self.high);
    visit("pairs", self.pairs);
  }
};

/// How the loss compares: the mean of its last part, with the plan less without it, over the seeds.
struct LossProof {
  enum class Verdict { not_worse, worse, inconclusive, unknown };
  Verdict verdict = Verdict::unknown;
  double difference = 0;
  double low = 0;
  double high = 0;
  double margin = 0;  ///< what counts as no difference: the baseline's own spread from seed to seed
  int pairs = 0;
  std::uint64_t steps = 0;
  std::string reason;  ///< of an unknown one

  static void fields(auto& self, auto&& visit) {
    visit("verdict", self.verdict);
    visit("difference", self.difference);
    visit("low", self.low);
    visit("high", self.high);
    visit("margin", self.margin);
    visit("pairs", self.pairs);
    visit("steps", self.steps);
    visit("reason", self.reason);
  }
};
std::string_view to_string(LossProof::Verdict verdict);

/// What a step is to get shorter by, said before a trial; negative where it gets longer.
struct Prediction {
  std::optional<double> ms;      ///< what the findings cost that the fix takes away
  std::optional<double> low_ms;  ///< and the interval for a fix that changes kernels
  std::optional<double> high_ms;

  static void fields(auto& self, auto&& visit) {
    visit("ms", self.ms);
    visit("low_ms", self.low_ms);
    visit("high_ms", self.high_ms);
  }
};

/// What became of one fix in the search.
struct TriedFix {
  PlannedFix fix;
  std::string why;  ///< it was worth a trial
  Prediction predicted;
  bool kept = false;
  std::optional<double> before_ms;  ///< a step beside those that were kept before it; nothing when it was not measured
  std::optional<double> after_ms;
  std::optional<double> before_watts;  ///< of the GPU; nothing where they were not told apart
  std::optional<double> after_watts;
  double once_s = 0;     ///< what it takes at the beginning: compiling, packing
  std::string reason;    ///< why it was dropped
  bool is_open = false;  ///< neither kept nor dropped: no start was left for it
  std::string caveat;    ///< what may be otherwise with it in this training, beside what the catalogue says

  std::optional<double> speedup() const;
  /// After how many steps what it takes at the beginning is paid for; nothing where it takes nothing, or gives nothing.
  std::optional<double> steps_to_pay() const;
  /// How much it matters, by how many times as fast it makes a step: highest, high, medium or low.
  std::string_view priority() const;

  static void fields(auto& self, auto&& visit) {
    visit("fix", self.fix);
    visit("why", self.why);
    visit("predicted", self.predicted);
    visit("kept", self.kept);
    visit("before_ms", self.before_ms);
    visit("after_ms", self.after_ms);
    visit("before_watts", self.before_watts);
    visit("after_watts", self.after_watts);
    visit("once_s", self.once_s);
    visit("reason", self.reason);
    visit("open", self.is_open);
    visit("caveat", self.caveat);
  }
};

/// A batch size that was measured.
struct TriedBatch {
  std::uint64_t size = 0;
  std::optional<double> predicted_bytes;  ///< of memory, from smaller batches
  double peak_bytes = 0;
  double samples_per_second = 0;
  std::optional<double> predicted_low;  ///< samples per second, said before it was tried
  std::optional<double> predicted_high;
  bool out_of_memory = false;  ///< nothing was measured then

  static void fields(auto& self, auto&& visit) {
    visit("size", self.size);
    visit("predicted_bytes", self.predicted_bytes);
    visit("peak_bytes", self.peak_bytes);
    visit("samples_per_second", self.samples_per_second);
    visit("predicted_low", self.predicted_low);
    visit("predicted_high", self.predicted_high);
    visit("out_of_memory", self.out_of_memory);
  }
};

/// Two starts with one seed: the program as it is, and with the plan. Long series of losses are thinned out.
struct ProvedPair {
  static constexpr std::size_t kMostLosses = 200;

  int seed_offset = 0;
  double without_ms = 0;
  double with_ms = 0;
  std::vector<double> losses_without;
  std::vector<double> losses_with;

  static void fields(auto& self, auto&& visit) {
    visit("seed_offset", self.seed_offset);
    visit("without_ms", self.without_ms);
    visit("with_ms", self.with_ms);
    visit("losses_without", self.losses_without);
    visit("losses_with", self.losses_with);
  }
};

/// What would be changed in a file of the user's, as `diff -u` writes it.
struct SourceDiff {
  std::string file;
  std::string diff;

  static void fields(auto& self, auto&& visit) {
    visit("file", self.file);
    visit("diff", self.diff);
  }
};

/// What else could use a card that stays idle; its words are the label tune_advice_ and the id.
struct Advice {
  std::string id;
  std::map<std::string, std::string> facts;

  static void fields(auto& self, auto&& visit) {
    visit("id", self.id);
    visit("facts", self.facts);
  }
};

/// The answer of `tune`: the plan, how it was found, and the proof.
struct Tuning {
  static constexpr int kSchemaVersion = 1;

  Plan plan;
  Plan needed;  ///< without which the program has no room here: all comparisons are with it; usually empty
  std::vector<TriedFix> tried;
  std::vector<TriedBatch> batches;  ///< where the batch size was to be changed
  int search_starts = 0;            ///< of the program, until the plan was found
  double search_s = 0;              ///< that these took
  double before_ms = 0;             ///< of a step, in the search
  double after_ms = 0;
  double samples_per_step = 0;
  GpuWork gpu_before;
  GpuWork gpu_after;
  std::string failure;       ///< why nothing could be tried; empty when it could
  bool interrupted = false;  ///< by the user, who gets the best so far
  SpeedProof speed;
  LossProof loss;
  std::vector<ProvedPair> pairs;       ///< of the proof
  std::vector<SourceDiff> source;      ///< the plan written into the user's own files, as far as that is possible
  std::vector<std::string> in_source;  ///< fixes that are in it
  std::vector<Advice> advice;
  std::vector<Finding> remaining;  ///< what the plan leaves, and the author could mend

  static void fields(auto& self, auto&& visit) {
    visit("plan", self.plan);
    visit("needed", self.needed);
    visit("tried", self.tried);
    visit("batches", self.batches);
    visit("search_starts", self.search_starts);
    visit("search_s", self.search_s);
    visit("before_ms", self.before_ms);
    visit("after_ms", self.after_ms);
    visit("samples_per_step", self.samples_per_step);
    visit("gpu_before", self.gpu_before);
    visit("gpu_after", self.gpu_after);
    visit("failure", self.failure);
    visit("interrupted", self.interrupted);
    visit("speed", self.speed);
    visit("loss", self.loss);
    visit("pairs", self.pairs);
    visit("source", self.source);
    visit("in_source", self.in_source);
    visit("advice", self.advice);
    visit("remaining", self.remaining);
  }

  bool has_found() const { return plan.fixes.size() > needed.fixes.size(); }
  bool is_proved() const { return speed.is_faster() && loss.verdict == LossProof::Verdict::not_worse; }
};

}  // namespace fullwatt::model
