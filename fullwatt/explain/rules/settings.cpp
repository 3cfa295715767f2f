// The configuration says one thing, the program does another (D5).

#include "fullwatt/explain/settings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/config_file.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

/// Settings that change how fast a training is; the others are only shown in the table.
constexpr std::array<std::string_view, 5> kOwnRule{"loader.num_workers", "batch_size", "amp", "compile",
                                                   "cudnn.benchmark"};
constexpr std::array<std::string_view, 9> kPerformance{"loader.pin_memory",
                                                       "loader.prefetch_factor",
                                                       "loader.persistent_workers",
                                                       "channels_last",
                                                       "tf32",
                                                       "accumulation_steps",
                                                       "optimizer.fused",
                                                       "device",
                                                       "compile.mode"};

/// "train.py:40" back to a place of the user's code.
model::Site site_of(const Case& examined, const std::string& place) {
  const auto colon = place.rfind(':');
  if (colon == std::string::npos) return {};
  const auto line = base::number<int>(place.substr(colon + 1));
  if (!line) return {};
  for (const auto& [path, text] : examined.evidence.run.sources) {
    if (base::file_name(path) == place.substr(0, colon)) return {path, *line, {}};
  }
  return {place.substr(0, colon), *line, {}};
}

Match differing(const Case& examined, const model::SettingRow& row) {
  Match match;
  if (!row.in_force_at.empty()) match.at(site_of(examined, row.in_force_at));
  match.fact("place", row.in_force_at.empty() ? "?" : row.in_force_at);
  match.fact("variable", row.name)
      .fact("value", row.declared)
      .fact("expected", row.in_force)
      .fact("path", row.declared_at);
  match.saw(row.name + " as declared", row.declared, row.declared_at);
  return match.saw(row.name + " in force", row.in_force, row.in_force_at);
}

/// A value that the command line overrode is no surprise.
bool surprising(const model::SettingRow& row) {
  return row.differs && !row.in_force_at.starts_with("--") && !row.declared_at.ends_with("(default)");
}

Matches of_setting(const Case& examined, std::string_view name) {
  for (const auto& row : examined.settings) {
    if (row.name == name && surprising(row)) return {differing(examined, row)};
  }
  return {};
}

Matches workers(const Case& examined) {
  return of_setting(examined, kOwnRule[0]);
}
/// What counts are the samples of a step: those of a loader that reads whole batches from files are more than it says.
Matches batch_size(const Case& examined) {
  auto matches = of_setting(examined, kOwnRule[1]);
  const auto samples = std::llround(examined.evidence.steps.samples);
  for (auto& match : matches) {
    if (samples > 0) match.fact("expected", std::to_string(samples));
  }
  return matches;
}
/// A training that is faster than configured is only worth a note.
Matches mixed_precision(const Case& examined) {
  auto matches = of_setting(examined, kOwnRule[2]);
  for (auto& match : matches) {
    if (!values_differ(match.facts.at("value"), "off")) match.severity = model::Severity::note;
  }
  return matches;
}
/// Only what was asked for and not done: a compiled model that nobody configured is no fault.
Matches compiled(const Case& examined) {
  auto matches = of_setting(examined, kOwnRule[3]);
  std::erase_if(matches, [](const Match& match) { return match.facts.at("expected") != "false"; });
  return matches;
}
Matches cudnn_benchmark(const Case& examined) {
  return of_setting(examined, kOwnRule[4]);
}

Matches others(const Case& examined) {
  Matches matches;
  for (const auto& row : examined.settings) {
    const bool listed = std::ranges::find(kPerformance, row.name) != kPerformance.end();
    if (listed && surprising(row)) matches.push_back(differing(examined, row));
  }
  return matches;
}

/// Whether the source handles a key in any way that does not depend on its type.
bool handled_otherwise(const SourceFacts& source, const std::string& key, const std::string& type) {
  for (const auto& file : source.files) {
    if (std::ranges::find(file.truths, key) != file.truths.end()) return true;
    for (const auto& comparison : file.comparisons) {
      if (comparison.key == key && (comparison.converted || comparison.type == type)) return true;
    }
  }
  return false;
}

bool never_equal(const std::string& declared, const std::string& compared) {
  if (compared == "NoneType" || declared == compared || declared.empty()) return false;
  const bool numbers = (declared == "int" || declared == "float" || declared == "bool") &&
                       (compared == "int" || compared == "float" || compared == "bool");
  return !numbers;
}

struct Compared {
  const SourceFile* file = nullptr;
  const SourceComparison* comparison = nullptr;
};

bool known_setting(const std::string& key) {
  return std::ranges::any_of(known_settings(), [&](const KnownSetting& setting) {
    const auto spellings = base::split(setting.spellings, ' ');
    return std::ranges::find(spellings, key) != spellings.end();
  });
}

/// A variable of the same name may be another thing: then only a known setting counts, or a boolean that is read from
/// something.
bool is_that_setting(const ConfigValue& value, const SourceComparison& comparison) {
  if (known_setting(value.key)) return true;
  return value.type == "bool" && comparison.what != comparison.key && !comparison.what.starts_with("self.");
}

/// The first comparison of a key that can never hold.
Compared wrong_comparison(const SourceFacts& source, const ConfigValue& value) {
  for (const auto& file : source.files) {
    for (const auto& comparison : file.comparisons) {
      if (base::lower(comparison.key) == value.key && never_equal(value.type, comparison.type) &&
          is_that_setting(value, comparison))
        return {&file, &comparison};
    }
  }
  return {};
}

Matches wrong_type(const Case& examined) {
  Matches matches;
  std::set<std::string> told;
  for (const auto& [path, text] : examined.evidence.run.config_files) {
    for (const auto& value : read_config(path, text)) {
      if (value.type.empty() || value.type == "NoneType") continue;
      const auto [file, comparison] = wrong_comparison(examined.source, value);
      if (comparison == nullptr || handled_otherwise(examined.source, comparison->key, value.type) ||
          !told.insert(value.key).second)
        continue;
      Match match;
      match.at({file->path, comparison->line, comparison->function});
      match.fact("variable", value.key)
          .fact("value", value.value)
          .fact("expected", fmt::format("'{}'", comparison->literal));
      match.fact("unit", value.type)
          .fact("name", comparison->type)
          .fact("path", fmt::format("{}:{}", base::file_name(path), value.line));
      matches.push_back(
          std::move(match.saw(value.path, fmt::format("{} ({})", value.value, value.type), match.facts["path"])
                        .saw("compared with", fmt::format("'{}' ({})", comparison->literal, comparison->type),
                             match.facts["place"])));
    }
  }
  return matches;
}

/// What makes trainings faster, when a function's body does it.
std::vector<std::string> optimisations_in(const SourceFile& file, const SourceFunction& function) {
  std::vector<std::string> found;
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(found, name) == found.end()) found.push_back(name);
  };
  for (const auto& assignment : file.assignments) {
    const bool of_backend = base::contains(assignment.target, "backends.") || assignment.target.starts_with("cudnn.") ||
                            assignment.target == "os.environ[PYTORCH_CUDA_ALLOC_CONF]";
    if (assignment.function == function.qualified && of_backend) add(assignment.target);
  }
  for (const auto& call : file.calls) {
    const bool layout = call.keywords.contains("memory_format") && call.name.ends_with(".to");
    const bool named = call.name == "torch.compile" || base::contains(call.name, "set_float32_matmul_precision") ||
                       base::contains(call.name, "make_graphed_callables");
    if (call.function == function.qualified && (layout || named)) add(layout ? "memory_format" : call.name);
  }
  return found;
}

/// Others may call these without naming them: Python, a framework, a test.
bool called_by_others(const SourceFunction& function) {
  constexpr std::array<std::string_view, 8> kHooks{
      "forward", "setup",         "configure_model", "configure_optimizers",
      "main",    "training_step", "prepare_data",    "on_fit_start"};
  const auto own = [](const std::string& name) { return name == "staticmethod" || name == "classmethod"; };
  if (!std::ranges::all_of(function.decorators, own)) return true;
  return function.name.starts_with("__") || function.name.starts_with("test") || function.name.starts_with("on_") ||
         std::ranges::find(kHooks, function.name) != kHooks.end();
}

Matches never_called(const Case& examined) {
  Matches matches;
  for (const auto& file : examined.source.files) {
    for (const auto& function : file.functions) {
      if (called_by_others(function) || examined.source.referenced(function.name)) continue;
      const auto found = optimisations_in(file, function);
      if (found.empty()) continue;
      Match match;
      match.at({file.path, function.line, function.name})
          .fact("function", function.qualified + "()")
          .fact("value", base::join(found, ", "));
      matches.push_back(std::move(match.saw("defined, never used", function.qualified, match.facts["place"])));
    }
  }
  return matches;
}

constexpr std::array kRules{
    Rule{"config-workers-ignored", workers},
    Rule{"config-batch-size-ignored", batch_size},
    Rule{"config-amp-ignored", mixed_precision},
    Rule{"config-compile-ignored", compiled},
    Rule{"config-cudnn-benchmark-ignored", cudnn_benchmark},
    Rule{"config-setting-ignored", others},
    Rule{"setting-wrong-type", wrong_type},
    Rule{"optimisation-never-called", never_called},
};

}  // namespace

std::span<const Rule> settings_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
