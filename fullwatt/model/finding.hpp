#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullwatt::model {

enum class Layer { hardware, driver, cuda, pytorch, application };
inline constexpr std::array kLayers{Layer::hardware, Layer::driver, Layer::cuda, Layer::pytorch, Layer::application};
std::string_view to_string(Layer layer);
std::optional<Layer> layer_from_string(std::string_view text);

enum class Severity { info, note, warning, error };
std::string_view to_string(Severity severity);
std::optional<Severity> severity_from_string(std::string_view text);

/// How sure a finding is. `possible` comes from thin sources: it is offered, never claimed.
enum class Confidence { possible, likely, certain };
std::string_view to_string(Confidence confidence);
std::optional<Confidence> confidence_from_string(std::string_view text);

/// One observed fact: what was looked at, what it was, where it was read. The value is text from outside.
struct Evidence {
  std::string what;
  std::string value;
  std::string where;

  bool operator==(const Evidence&) const = default;
  static void fields(auto& self, auto&& visit) {
    visit("what", self.what);
    visit("value", self.value);
    visit("where", self.where);
  }
};

/// A problem or a remarkable state, with all that is needed to explain and mend it.
struct Finding {
  std::string id;
  Layer layer = Layer::hardware;
  Severity severity = Severity::info;
  Confidence confidence = Confidence::likely;
  std::vector<Evidence> evidence;
  std::map<std::string, std::string> facts;  ///< fill the placeholders of its words
  std::string file;                          ///< of the user's code, where known
  int line = 0;
  std::optional<double> charged_ms;     ///< where the step's time went; known to `run` only
  std::optional<double> gain_ms;        ///< what removing it would give
  std::optional<double> gain_after_ms;  ///< … once the loader keeps up, which may hide it
  bool between_steps = false;           ///< these are no part of a step: the time between two, on average
  std::string fix;                      ///< id of the fix that mends it, where one exists
  std::string consequence_of;           ///< id of the finding that explains this one

  /// The loader gives no more batches than it does, so that mending this alone would give little.
  bool hidden_by_loader() const { return gain_ms.value_or(0) < gain_after_ms.value_or(0) / 2; }
  double best_gain_ms() const { return hidden_by_loader() ? *gain_after_ms : gain_ms.value_or(0); }

  static void fields(auto& self, auto&& visit) {
    visit("id", self.id);
    visit("layer", self.layer);
    visit("severity", self.severity);
    visit("confidence", self.confidence);
    visit("evidence", self.evidence);
    visit("facts", self.facts);
    visit("file", self.file);
    visit("line", self.line);
    visit("charged_ms", self.charged_ms);
    visit("gain_ms", self.gain_ms);
    visit("gain_after_ms", self.gain_after_ms);
    visit("between_steps", self.between_steps);
    visit("fix", self.fix);
    visit("consequence_of", self.consequence_of);
  }
};

/// How one check ended.
struct CheckResult {
  enum class Status { passed, found, skipped, broken };
  std::string id;
  Layer layer = Layer::hardware;
  Status status = Status::passed;
  std::string reason;  ///< why it was skipped or how it broke

  static void fields(auto& self, auto&& visit) {
    visit("id", self.id);
    visit("layer", self.layer);
    visit("status", self.status);
    visit("reason", self.reason);
  }
};
std::string_view to_string(CheckResult::Status status);

/// How far one layer got.
struct LayerStatus {
  enum class State { works, degraded, broken, unknown, not_applicable };
  Layer layer = Layer::hardware;
  State state = State::unknown;
  std::string summary;  ///< facts in one line

  static void fields(auto& self, auto&& visit) {
    visit("layer", self.layer);
    visit("state", self.state);
    visit("summary", self.summary);
  }
};
std::string_view to_string(LayerStatus::State state);

/// The whole answer: the root cause first, then what else is wrong, then what follows from it.
struct Diagnosis {
  static constexpr int kSchemaVersion = 1;

  std::string root_cause;  ///< id of the finding at the lowest broken layer; empty when nothing is broken
  std::vector<Finding> findings;
  std::vector<LayerStatus> layers;
  std::vector<CheckResult> checks;

  const Finding* find(std::string_view id) const;
  static void fields(auto& self, auto&& visit) {
    visit("root_cause", self.root_cause);
    visit("findings", self.findings);
    visit("layers", self.layers);
    visit("checks", self.checks);
  }
};

}  // namespace fullwatt::model
