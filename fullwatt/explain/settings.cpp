#include "fullwatt/explain/settings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/config_file.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

using model::SettingRow;

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, text) != names.end();
}

/// What a word means: on, off, bf16, fp16, or itself.
std::string meaning(std::string_view raw) {
  auto word = base::lower(base::trim(raw));
  if (word.starts_with("torch.")) word.erase(0, 6);
  if (is_one_of(word, {"true", "yes", "on", "1", "enabled", "enable", "mixed"})) return "on";
  if (is_one_of(word, {"", "false", "no", "off", "0", "none", "null", "disabled", "fp32", "float32", "32", "32-true",
                       "full", "single", "highest", "high", "medium"}))
    return "off";
  if (is_one_of(word, {"bf16", "bfloat16", "bf16-mixed", "bf16-true"})) return "bf16";
  if (is_one_of(word, {"fp16", "float16", "half", "16", "16-mixed", "16-true", "o1", "o2"})) return "fp16";
  if (is_one_of(word, {"gpu", "cuda", "cuda:0"})) return "cuda:0";
  return word;
}

/// A value that somebody wrote down.
struct Declared {
  std::string value;
  std::string key;
  std::string at;         ///< "config.yaml:12", "--workers"
  bool argument = false;  ///< given on the command line
  bool standard = false;  ///< the default of an argument that nobody gave
};

bool spelled(const KnownSetting& setting, std::string_view key, std::string_view path) {
  const auto low = base::lower(path);
  const auto spellings = base::split(setting.spellings, ' ');
  return std::ranges::any_of(spellings, [&](std::string_view name) {
    if (name.find('.') == std::string_view::npos) return name == key;
    return low == name || low.ends_with("." + std::string(name));
  });
}

/// Settings of evaluation stand beside those of training and mean another loader.
bool about_evaluation(std::string_view path) {
  const auto low = base::lower(path);
  const auto parts = base::split(low, '.');
  return std::ranges::any_of(parts, [](std::string_view part) {
    return is_one_of(
        part, {"val", "valid", "validation", "eval", "evaluation", "test", "testing", "infer", "inference", "predict"});
  });
}

std::string normal_key(std::string_view name) {
  auto key = base::lower(name);
  std::ranges::replace(key, '-', '_');
  return key;
}

void from_files(const Evidence& evidence, const KnownSetting& setting, std::vector<Declared>& found) {
  for (const auto& [path, text] : evidence.run.config_files) {
    for (const auto& value : read_config(path, text)) {
      const auto key = normal_key(value.key);
      if (!spelled(setting, key, value.path) || about_evaluation(value.path)) continue;
      found.push_back({value.value, key, fmt::format("{}:{}", base::file_name(path), value.line), false, false});
    }
  }
}

void from_arguments(const Evidence& evidence, const KnownSetting& setting, std::vector<Declared>& found) {
  for (const auto& parser : evidence.facts.arguments) {
    for (const auto& [name, value] : parser.values) {
      const auto key = normal_key(name);
      if (!spelled(setting, key, key)) continue;
      const bool given = std::ranges::find(parser.given, name) != parser.given.end();
      auto option = "--" + name;
      std::ranges::replace(option, '_', '-');
      found.push_back({value, key, option, given, !given});
    }
  }
}

/// `fp16: false` beside `bf16: true` says nothing, and `fp16: true` says which kind.
std::optional<std::string> precision_value(const Declared& declared) {
  const bool bf16 = base::contains(declared.key, "bf16");
  const bool fp16 = base::contains(declared.key, "fp16") || declared.key == "half";
  if (!bf16 && !fp16) return declared.value;
  if (meaning(declared.value) == "off") return std::nullopt;
  return bf16 ? "bf16" : "fp16";
}

bool differs(const KnownSetting& setting, const std::string& value, const InForce& in_force, const Evidence& evidence) {
  if (in_force.value.empty()) return false;
  if (setting.name == "batch_size") {
    const auto samples = std::to_string(std::llround(evidence.steps.samples));
    return values_differ(value, in_force.value) && values_differ(value, samples);
  }
  if (setting.name == "optimizer") {
    const auto declared = base::lower(value);
    const auto real = base::lower(in_force.value);
    return !base::contains(declared, real) && !base::contains(real, declared);
  }
  if (setting.name == "device" && is_one_of(base::lower(value), {"auto", "none", ""})) return false;
  if (setting.name == "device" && base::number<int>(value)) return in_force.value != "cuda:" + value;
  if (setting.name == "compile") return (meaning(value) == "off") != (in_force.value == "false");
  if (setting.name == "channels_last" && base::contains(base::lower(value), "channels_last"))
    return in_force.value != "true";
  // A schedule changes it, and there is no telling which value is the first.
  if (setting.name == "learning_rate") return false;
  return values_differ(value, in_force.value);
}

SettingRow row_of(const KnownSetting& setting, const Declared& declared, const InForce& in_force,
                  const Evidence& evidence) {
  SettingRow row;
  row.name = setting.name;
  row.declared = declared.value;
  row.declared_at = declared.standard ? declared.at + " (default)" : declared.at;
  row.in_force = in_force.value;
  row.in_force_at = in_force.at;
  row.remark = in_force.remark;
  const auto value = setting.name == "amp" ? precision_value(declared) : std::optional(declared.value);
  row.differs = value && differs(setting, *value, in_force, evidence);
  return row;
}

/// A value that the command line gave goes before the file's; a default goes after it.
void settle(std::vector<SettingRow>& rows, const std::vector<Declared>& declared) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].differs) continue;
    for (std::size_t j = 0; j < rows.size(); ++j) {
      if (rows[j].differs || rows[j].in_force.empty() || (declared[j].standard && !declared[i].standard)) continue;
      if (declared[j].argument) rows[i].in_force_at = declared[j].at;
      if (!declared[j].argument) rows[i].in_force_at = rows[j].declared_at;
      rows[i].remark = "overridden by " + rows[i].in_force_at;
      if (declared[i].standard) rows[i].differs = false;
    }
  }
}

std::vector<SettingRow> rows_of(const KnownSetting& setting, const Evidence& evidence, const SourceFacts& source) {
  std::vector<Declared> declared;
  from_files(evidence, setting, declared);
  from_arguments(evidence, setting, declared);
  if (declared.empty()) return {};
  const auto in_force = setting.in_force(evidence, source);
  std::vector<SettingRow> rows;
  for (const auto& value : declared) rows.push_back(row_of(setting, value, in_force, evidence));
  settle(rows, declared);
  return rows;
}

}  // namespace

bool values_differ(std::string_view declared, std::string_view in_force) {
  const auto left = real_number(declared);
  const auto right = real_number(in_force);
  if (left && right) return std::abs(*left - *right) > 1e-9 * std::max(std::abs(*left), std::abs(*right));
  const auto meant = meaning(declared);
  const auto real = meaning(in_force);
  if (meant == "on" && is_one_of(real, {"bf16", "fp16"})) return false;
  if (real == "on" && is_one_of(meant, {"bf16", "fp16"})) return false;
  return meant != real;
}

std::vector<SettingRow> compare_settings(const Evidence& evidence, const SourceFacts& source) {
  std::vector<SettingRow> rows;
  for (const auto& setting : known_settings()) {
    auto more = rows_of(setting, evidence, source);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  std::ranges::stable_sort(rows, std::ranges::greater{}, &SettingRow::differs);
  return rows;
}

}  // namespace fullwatt::explain
