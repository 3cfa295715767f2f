#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// What the host did at one moment: a phase of the agent, or none of them (forward, loss, logging).
enum class HostPhase { data, backward, optimizer, save, garbage, evaluation, compile, agent, rest };
constexpr std::size_t kHostPhases = 9;

/// What else happened in a step: the values of record::StepFlag, which stands on the other side of the run folder.
namespace step_flag {
constexpr unsigned kInTimes = 1;
constexpr unsigned kInCauses = 2;
constexpr unsigned kSwitching = 4;
constexpr unsigned kEvaluated = 8;
constexpr unsigned kSaved = 16;
constexpr unsigned kCompiled = 32;
constexpr unsigned kMeasured = 64;
constexpr unsigned kCeiling = 128;
constexpr unsigned kCounting = 256;
}  // namespace step_flag

/// From one closing optimiser step to the next.
struct TrainingStep {
  std::uint64_t number = 0;  ///< of the closing optimiser step
  std::uint64_t start_ns = 0;
  std::uint64_t end_ns = 0;
  std::uint64_t samples = 0;
  unsigned flags = 0;                          ///< of all optimiser steps in it
  std::array<double, kHostPhases> phase_ms{};  ///< sums to the step

  double ms() const { return static_cast<double>(end_ns - start_ns) / 1e6; }
  bool plain() const { return flags == 0; }
  bool has(unsigned flag) const { return (flags & flag) != 0; }
};

/// The training steps of one process and what is typical of the plain ones.
///
/// The parts of a step are charged against the MEAN of the plain steps that were kept, because medians of parts do not
/// add up to the median of the whole. Steps beyond five median deviations are left out of the mean while they are rare;
/// where they are not (a loader that delivers in bursts makes one step in four a long one), they are how this training
/// runs and stay in.
struct Steps {
  std::vector<TrainingStep> all;               ///< in order; the newest ones of the run
  std::vector<TrainingStep> ceiling;           ///< behind them, in a ceiling test
  std::vector<std::size_t> plain;              ///< indices in `all` of the plain steps kept
  model::Spread step_ms;                       ///< of these
  std::array<double, kHostPhases> phase_ms{};  ///< their mean; sums to step_ms.mean
  double samples = 0;                          ///< their mean

  bool disturbed = false;            ///< there were no plain steps, these are the least disturbed ones
  std::vector<std::size_t> hurried;  ///< indices in `all` of plain steps in which the host only filled the GPU's queue

  bool known() const { return !plain.empty(); }
  double mean_ms() const { return step_ms.mean; }
  double phase(HostPhase phase) const { return phase_ms[static_cast<std::size_t>(phase)]; }
};

/// Which optimiser's step ends a training step: the one that steps least often, of several the last in the cycle.
int closing_optimizer(const model::TrainingProcess& process);
std::vector<TrainingStep> training_steps(const model::TrainingProcess& process);
/// Training steps of the whole run; the recorder counts calls of optimisers.
std::uint64_t count_steps(const model::TrainingProcess& process);
/// What the GPU does in a step; nothing when that is not known.
struct GpuPace {
  double busy_ms = 0;
  double launches = 0;
};
/// A host that begins with an empty queue hurries ahead of the GPU until the driver's queue is full: steps after such a
/// beginning that are shorter than the GPU's work are no steps of this training, and are left out.
Steps find_steps(const model::TrainingProcess& process, const GpuPace& gpu = {});

/// Median, mean, 5th and 95th percentile.
model::Spread spread_of(std::vector<double> values);
/// Indices of the values that count for the mean.
std::vector<std::size_t> without_outliers(const std::vector<double>& values);

}  // namespace fullwatt::explain
