#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/explain/evidence.hpp"
#include "fullwatt/explain/rules/loader_work.hpp"
#include "fullwatt/explain/source_facts.hpp"
#include "fullwatt/explain/trained_gpu.hpp"
#include "fullwatt/model/explanation.hpp"
#include "fullwatt/model/finding.hpp"

namespace fullwatt::explain {

/// What a change gives of a step: alone, and once the loader keeps up. A loader that gives no more hides every other
/// gain.
struct Gain {
  double alone;
  double after;

  Gain(double ms) : alone(ms), after(ms) {}  // NOLINT(google-explicit-constructor): most changes give one number
  Gain(double alone_ms, double after_ms) : alone(alone_ms), after(after_ms) {}
};

/// What a rule saw, where, and what it costs.
struct Match {
  std::vector<model::Evidence> evidence;
  std::map<std::string, std::string> facts;
  model::Site site;
  std::optional<double> charged_ms;
  std::optional<double> gain_ms;
  std::optional<double> gain_after_ms;
  bool between_steps = false;
  std::optional<model::Severity> severity;  ///< where this case is milder or graver than the catalogue says

  Match& saw(std::string what, std::string value, std::string where = {});
  Match& fact(const std::string& name, std::string value);
  /// The line it is about; fills {place}, {function}.
  Match& at(const model::Site& where);
  /// The first of the places that is known.
  Match& near(std::initializer_list<model::Site> places);
  /// The price of a step; fills {ms} with what it is charged, {share} with its part of the step.
  Match& costs(double charged, const Gain& gain, double step_ms);
};
using Matches = std::vector<Match>;

/// What the rules look at: the evidence of explain, the user's source, and the settings that were compared.
struct Case {
  const Evidence& evidence;
  const SourceFacts& source;
  const std::vector<model::SettingRow>& settings;
  LoaderWork loader;
  TrainedGpu gpu;

  const ProcessFacts& facts() const { return evidence.facts; }
  double step_ms() const { return evidence.steps.mean_ms(); }
  /// Part of a step, 0 to 1.
  double share(double ms) const { return step_ms() > 0 ? ms / step_ms() : 0; }
  double charged(std::string_view cause) const { return evidence.attribution.ms(cause); }
  Gain gain(const Change& change) const;
  bool on_gpu() const { return evidence.explanation.has_gpu; }
};

/// One check: its id in the catalogue, where the words stand, and the predicate. It returns what it saw, at most once
/// for each line.
struct Rule {
  std::string_view id;
  Matches (*check)(const Case&);
};

std::span<const Rule> loader_rules();
std::span<const Rule> loader_course_rules();
std::span<const Rule> python_rules();
std::span<const Rule> sync_rules();
std::span<const Rule> copy_rules();
std::span<const Rule> debugging_rules();
std::span<const Rule> launch_rules();
std::span<const Rule> precision_rules();
std::span<const Rule> convolution_rules();
std::span<const Rule> kernel_rules();
std::span<const Rule> optimizer_rules();
std::span<const Rule> compile_rules();
std::span<const Rule> memory_rules();
std::span<const Rule> leak_rules();
std::span<const Rule> host_rules();
std::span<const Rule> course_rules();
std::span<const Rule> device_rules();
std::span<const Rule> hardware_rules();
std::span<const Rule> distributed_rules();
std::span<const Rule> settings_rules();
std::vector<Rule> all_rules();

/// What `doctor` finds broken, when the training runs on the CPU of a machine with an NVIDIA GPU.
std::vector<model::Finding> machine_findings(const Case& examined);
/// What of a step goes into starting the loader anew, for each epoch or even for each batch.
double restarts_ms(const Case& examined);
/// Whether the data set gives files of many samples, and the loader one of them for a batch.
bool reads_whole_batches(const Case& examined);
/// What of a step on the CPU a GPU would compute.
double on_cpu_ms(const Case& examined);

/// Which share of the affected time the catalogue promises to be left.
double keeps(std::string_view id);

/// Numbers as the words show them.
std::string ms_text(double ms);
std::string percent(double share);
std::string number_text(double value);
std::string seconds_text(double seconds);

}  // namespace fullwatt::explain
