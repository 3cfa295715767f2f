#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/explain/attribution.hpp"
#include "fullwatt/explain/gpu_time.hpp"
#include "fullwatt/explain/loader_pace.hpp"
#include "fullwatt/explain/recorded_causes.hpp"
#include "fullwatt/explain/steps.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::explain {

/// A training step that could have been.
struct Change {
  /// The host's work or wait of one cause vanishes, where asked only of one line or in one phase.
  struct Removal {
    std::string cause;  ///< an id of causes.hpp
    std::optional<model::Site> line;
    std::optional<HostPhase> phase;
    double share = 1;  ///< of it that vanishes
  };
  /// Kernels of a kind take `factor` times as long; an empty kind or precision means any.
  struct KernelScale {
    std::string kind;
    std::string precision;
    double factor = 1;
  };
  std::vector<Removal> removals;
  std::vector<KernelScale> kernels;

  static Change without(std::string_view cause) { return {{{std::string(cause), std::nullopt, std::nullopt, 1}}, {}}; }
  static Change without(std::string_view cause, const model::Site& line) {
    return {{{std::string(cause), line, std::nullopt, 1}}, {}};
  }
  static Change without(std::string_view cause, HostPhase phase) {
    return {{{std::string(cause), std::nullopt, phase, 1}}, {}};
  }
  static Change scaled(std::string_view kind, std::string_view precision, double factor) {
    return {{}, {{std::string(kind), std::string(precision), factor}}};
  }
  Change& operator+=(const Change& other);
};

/// Plays the recorded step again with something changed: the host runs its segments one after the other, a kernel
/// starts when it is launched and its stream is free, a synchronisation waits for what it waited for. The baseline
/// meets the measured mean step. Without kernel records a removed cause gives what it was charged.
class Replay {
 public:
  Replay();
  ~Replay();
  Replay(Replay&&) noexcept;
  Replay& operator=(Replay&&) noexcept;

  /// Length of a step with the change, between 0 and the baseline unless kernels are made slower.
  double step_ms(const Change& change) const;
  double baseline_ms() const;
  /// What the change gives, never negative.
  double gain_ms(const Change& change) const;
  /// False: there was no window of causes with kernels, gains are the charges.
  bool simulates() const;

  struct Data;
  explicit Replay(std::unique_ptr<Data> data);

 private:
  std::unique_ptr<Data> data_;
};

Replay make_replay(const model::TrainingProcess& process, const Steps& steps, const GpuTime& time,
                   const RecordedCauses& causes, const Attribution& attribution, const LoaderPace& loader);

/// What removing each cause would give: alone, and after those that give more.
void price(std::vector<model::Cause>& causes, const Replay& replay);

}  // namespace fullwatt::explain
