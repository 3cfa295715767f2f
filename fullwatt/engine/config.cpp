#include "fullwatt/engine/config.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::engine {
namespace {

constexpr std::size_t kMostBytes = 1U << 20U;

/// Thrown while a configuration is read; becomes an Error. `place` is a line of the file, or an override.
struct Wrong {
  std::string place;
  std::string what;
};

std::string shown(std::string_view text) {
  return "'" + base::printable(text, 60) + "'";
}

/// A value with the place where it stands.
struct Value {
  std::string text;
  std::string place;

  [[noreturn]] void refuse(const std::string& what) const { throw Wrong{place, what + ", not " + shown(text)}; }
};

std::int64_t whole_number(const Value& value, std::int64_t least, std::int64_t most) {
  const auto number = base::number<std::int64_t>(value.text);
  if (!number || *number < least || *number > most)
    value.refuse(fmt::format("it must be a whole number from {} to {}", least, most));
  return *number;
}

double number(const Value& value, double least, double most) {
  double found = 0;
  const auto* const end = value.text.data() + value.text.size();
  const auto [stopped, error] = std::from_chars(value.text.data(), end, found);
  if (error != std::errc{} || stopped != end || !(found >= least && found <= most))
    value.refuse(fmt::format("it must be a number from {:g} to {:g}", least, most));
  return found;
}

bool truth(const Value& value) {
  const auto word = base::lower(value.text);
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  value.refuse("it must be true or false");
}

constexpr std::pair<std::string_view, Precision> kPrecisions[] = {
    {"true", Precision::automatic}, {"auto", Precision::automatic}, {"bf16", Precision::bf16},
    {"fp16", Precision::fp16},      {"false", Precision::fp32},     {"none", Precision::fp32},
    {"fp32", Precision::fp32}};

/// As people write it: a truth, its text, or the name of a type.
Precision precision(const Value& value) {
  const auto word = base::lower(value.text);
  const auto* const found = std::ranges::find(kPrecisions, word, [](const auto& entry) { return entry.first; });
  if (found == std::end(kPrecisions)) value.refuse("it must be true, bf16, fp16, false or none");
  return found->second;
}

/// One key of the file: how it is read, and how it is told.
struct Key {
  std::string_view section;
  std::string_view name;
  std::function<void(Config&, const Value&)> read;
  std::function<std::string(const Config&)> tell;
  bool takes_list = false;
};

template <class Section, class Type>
Key whole(std::string_view section, std::string_view name, Section Config::* part, Type Section::* member,
          std::int64_t least, std::int64_t most) {
  return {section, name,
          [=](Config& config, const Value& value) { config.*part.*member = whole_number(value, least, most); },
          [=](const Config& config) { return std::to_string(config.*part.*member); }};
}

template <class Section>
Key real(std::string_view section, std::string_view name, Section Config::* part, double Section::* member,
         double least, double most) {
  return {section, name, [=](Config& config, const Value& value) { config.*part.*member = number(value, least, most); },
          [=](const Config& config) { return fmt::format("{:g}", config.*part.*member); }};
}

template <class Section>
Key flag(std::string_view section, std::string_view name, Section Config::* part, bool Section::* member) {
  return {section, name, [=](Config& config, const Value& value) { config.*part.*member = truth(value); },
          [=](const Config& config) { return config.*part.*member ? "true" : "false"; }};
}

template <class Section>
Key text(std::string_view section, std::string_view name, Section Config::* part, std::string Section::* member,
         const std::vector<std::string_view>& choices = {}) {
  const auto read = [=](Config& config, const Value& value) {
    if (!choices.empty() && std::ranges::find(choices, value.text) == choices.end())
      value.refuse(fmt::format("it must be one of {}", fmt::join(choices, ", ")));
    config.*part.*member = value.text;
  };
  return {section, name, read, [=](const Config& config) { return config.*part.*member; }};
}

constexpr std::int64_t kMany = 1LL << 40;

/// Two numbers, as in "0.9, 0.999".
void read_betas(Config& config, const Value& value) {
  const auto parts = base::split(value.text, ',');
  if (parts.size() != 2) value.refuse("it must be two numbers from 0 to 1, such as [0.9, 0.999]");
  constexpr double kMost = 0.999999999;
  config.optimizer.beta1 = number({std::string(base::trim(parts[0])), value.place}, 0, kMost);
  config.optimizer.beta2 = number({std::string(base::trim(parts[1])), value.place}, 0, kMost);
}

const std::vector<Key>& keys() {
  static const std::vector<Key> kAll{
      text("model", "name", &Config::model, &ModelConfig::name),
      whole("model", "channels", &Config::model, &ModelConfig::channels, 1, 4096),
      whole("model", "features", &Config::model, &ModelConfig::features, 1, 1 << 20),
      whole("model", "hidden", &Config::model, &ModelConfig::hidden, 1, 1 << 16),
      whole("model", "layers", &Config::model, &ModelConfig::layers, 1, 1024),
      real("model", "dropout", &Config::model, &ModelConfig::dropout, 0, 0.99),
      whole("model", "classes", &Config::model, &ModelConfig::classes, 1, 1 << 24),
      whole("model", "width", &Config::model, &ModelConfig::width, 1, 4096),
      whole("model", "vocabulary", &Config::model, &ModelConfig::vocabulary, 1, 1 << 24),
      whole("model", "context", &Config::model, &ModelConfig::context, 1, 1 << 20),
      whole("model", "heads", &Config::model, &ModelConfig::heads, 1, 1024),
      whole("model", "embedding", &Config::model, &ModelConfig::embedding, 1, 1 << 16),
      text("data", "folder", &Config::data, &DataConfig::folder),
      text("data", "format", &Config::data, &DataConfig::format, {"npy", "images"}),
      whole("data", "image_height", &Config::data, &DataConfig::image_height, 1, 16384),
      whole("data", "image_width", &Config::data, &DataConfig::image_width, 1, 16384),
      flag("data", "shuffle", &Config::data, &DataConfig::shuffle),
      real("data", "device_cache_gb", &Config::data, &DataConfig::device_cache_gb, 0, 1e5),
      whole("train", "epochs", &Config::train, &TrainConfig::epochs, 1, kMany),
      whole("train", "batch_size", &Config::train, &TrainConfig::batch_size, 1, 1 << 24),
      whole("train", "gradient_accumulation_steps", &Config::train, &TrainConfig::accumulation, 1, 65536),
      whole("train", "seed", &Config::train, &TrainConfig::seed, 0, kMany),
      whole("train", "log_every", &Config::train, &TrainConfig::log_every, 1, kMany),
      whole("train", "num_workers", &Config::train, &TrainConfig::num_workers, 0, 256),
      whole("train", "prefetch_factor", &Config::train, &TrainConfig::prefetch_factor, 2, 64),
      flag("train", "pin_memory", &Config::train, &TrainConfig::pin_memory),
      flag("train", "non_blocking", &Config::train, &TrainConfig::non_blocking),
      flag("train", "compile_model", &Config::train, &TrainConfig::compile_model),
      text("train", "compile_mode", &Config::train, &TrainConfig::compile_mode,
           {"default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"}),
      {"train", "amp", [](Config& config, const Value& value) { config.train.amp = precision(value); },
       [](const Config& config) { return std::string(to_string(config.train.amp)); }},
      flag("train", "channels_last", &Config::train, &TrainConfig::channels_last),
      real("train", "clip", &Config::train, &TrainConfig::clip, 0, 1e12),
      text("hardware", "device", &Config::hardware, &HardwareConfig::device, {"auto", "cpu", "cuda"}),
      flag("hardware", "cudnn_benchmark", &Config::hardware, &HardwareConfig::cudnn_benchmark),
      flag("hardware", "allow_tf32", &Config::hardware, &HardwareConfig::allow_tf32),
      flag("hardware", "deterministic", &Config::hardware, &HardwareConfig::deterministic),
      whole("hardware", "timeout_seconds", &Config::hardware, &HardwareConfig::timeout_seconds, 1, 86400),
      text("optimizer", "name", &Config::optimizer, &OptimizerConfig::name, {"adamw", "sgd"}),
      real("optimizer", "lr", &Config::optimizer, &OptimizerConfig::lr, 0, 1e3),
      real("optimizer", "weight_decay", &Config::optimizer, &OptimizerConfig::weight_decay, 0, 1e3),
      {"optimizer", "betas", read_betas,
       [](const Config& config) { return fmt::format("{:g}, {:g}", config.optimizer.beta1, config.optimizer.beta2); },
       true},
      real("optimizer", "eps", &Config::optimizer, &OptimizerConfig::epsilon, 0, 1),
      real("optimizer", "momentum", &Config::optimizer, &OptimizerConfig::momentum, 0, 0.999999999),
      flag("optimizer", "nesterov", &Config::optimizer, &OptimizerConfig::nesterov),
      flag("optimizer", "fused", &Config::optimizer, &OptimizerConfig::fused),
      text("optimizer", "schedule", &Config::optimizer, &OptimizerConfig::schedule, {"constant", "linear", "cosine"}),
      real("optimizer", "lr_min", &Config::optimizer, &OptimizerConfig::lr_min, 0, 1e3),
      whole("optimizer", "warmup_steps", &Config::optimizer, &OptimizerConfig::warmup_steps, 0, kMany),
      text("output", "folder", &Config::output, &OutputConfig::folder),
      whole("output", "every_epochs", &Config::output, &OutputConfig::every_epochs, 1, kMany),
      flag("output", "tensorboard", &Config::output, &OutputConfig::tensorboard),
  };
  return kAll;
}

const Key& find_key(const std::string& section, const std::string& name, const std::string& place) {
  std::vector<std::string_view> sections;
  std::vector<std::string_view> names;
  for (const auto& key : keys()) {
    if (std::ranges::find(sections, key.section) == sections.end()) sections.push_back(key.section);
    if (key.section == section) names.push_back(key.name);
    if (key.section == section && key.name == name) return key;
  }
  const auto meant = [](std::string_view near) {
    return near.empty() ? std::string() : fmt::format("; did you mean '{}'?", near);
  };
  if (names.empty())
    throw Wrong{place,
                fmt::format("there is no section {}{}", shown(section), meant(base::nearest(section, sections)))};
  throw Wrong{place, fmt::format("there is no {} in '{}'{}", shown(name), section, meant(base::nearest(name, names)))};
}

std::string line_of(const YAML::Node& node) {
  return fmt::format("line {}", node.Mark().line + 1);
}

const std::string& scalar(const YAML::Node& node, const std::string& what) {
  if (!node.IsScalar()) throw Wrong{line_of(node), what + " must be a single value"};
  return node.Scalar();
}

/// A single value, or several as they stand on a command line: separated by commas.
std::string text_of(const YAML::Node& node, const std::string& what, bool takes_list) {
  if (!takes_list || !node.IsSequence()) return scalar(node, what);
  std::vector<std::string> values;
  for (const auto& item : node) values.push_back(scalar(item, what));
  return base::join(values, ",");
}

void read_fields(const YAML::Node& node, Config& config) {
  if (!node.IsMap()) throw Wrong{line_of(node), "'fields' must name the files of each field of a sample"};
  for (const auto& item : node)
    config.data.fields[scalar(item.first, "a field's name")] = scalar(item.second, "a field's files");
}

void read_section(const std::string& section, const YAML::Node& node, Config& config) {
  if (!node.IsMap()) throw Wrong{line_of(node), "the section " + shown(section) + " must have keys and values"};
  std::set<std::string> seen;
  for (const auto& item : node) {
    const auto& name = scalar(item.first, "a key");
    if (!seen.insert(name).second) throw Wrong{line_of(item.first), shown(name) + " stands twice"};
    if (section == "data" && name == "fields") {
      read_fields(item.second, config);
      continue;
    }
    const auto& key = find_key(section, name, line_of(item.first));
    key.read(config, {text_of(item.second, name, key.takes_list), line_of(item.second) + ", " + section + "." + name});
  }
}

void read_override(const std::string& given, Config& config) {
  const auto equals = given.find('=');
  const auto dot = given.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals)
    throw Wrong{shown(given), "an override looks like train.batch_size=128"};
  const auto& key = find_key(given.substr(0, dot), given.substr(dot + 1, equals - dot - 1), shown(given));
  key.read(config, {given.substr(equals + 1), shown(given)});
}

/// Values that are to be tried, each as if it stood in the file.
void read_grid(const YAML::Node& node, Config& config) {
  if (!node.IsMap()) throw Wrong{line_of(node), "'grid' lists values, as in model.hidden: [64, 128]"};
  for (const auto& item : node) {
    const auto& setting = scalar(item.first, "a setting");
    if (!item.second.IsSequence() || item.second.size() == 0)
      throw Wrong{line_of(item.second), shown(setting) + " must list values, as in [64, 128]"};
    std::vector<std::string> values;
    for (const auto& value : item.second) {
      auto tried = config;
      values.push_back(scalar(value, "a value"));
      try {
        read_override(setting + "=" + values.back(), tried);
      } catch (const Wrong& wrong) {
        throw Wrong{line_of(value), wrong.place + ": " + wrong.what};
      }
    }
    config.grid.emplace_back(setting, std::move(values));
  }
  constexpr std::size_t kMostTrials = 1000;
  std::size_t trials = 1;
  for (const auto& [setting, values] : config.grid) trials = std::min(kMostTrials + 1, trials * values.size());
  if (trials > kMostTrials) throw Wrong{line_of(node), fmt::format("the grid has more than {} trainings", kMostTrials)};
}

/// What each setting allows by itself and they do not together.
void check(const Config& config) {
  const auto refuse = [](std::string what) { throw Wrong{"", std::move(what)}; };
  if (config.model.name.empty()) refuse("model.name is missing: which model is to be trained?");
  if (config.data.folder.empty()) refuse("data.folder is missing: where are the samples?");
  if (config.data.format == "images" && !config.data.fields.empty())
    refuse("data.fields is for .npy files; with data.format: images the fields are images and labels");
  const auto& optimizer = config.optimizer;
  if (optimizer.lr_min > optimizer.lr) refuse("optimizer.lr_min is larger than optimizer.lr");
  if (optimizer.nesterov && (optimizer.name != "sgd" || optimizer.momentum == 0))
    refuse("optimizer.nesterov needs optimizer.name: sgd and a momentum");
  if (!optimizer.fused) refuse("optimizer.fused: false is not possible; this engine's optimisers are fused");
  if (config.model.embedding % config.model.heads != 0) refuse("model.embedding must be a multiple of model.heads");
}

Config config_of(const std::string& text, const std::vector<std::string>& overrides) {
  Config config;
  const auto document = YAML::Load(text);
  if (!document.IsMap()) throw Wrong{"line 1", "a configuration has sections such as 'model:' and 'train:'"};
  std::set<std::string> seen;
  for (const auto& item : document) {
    const auto& section = scalar(item.first, "a section's name");
    if (!seen.insert(section).second) throw Wrong{line_of(item.first), shown(section) + " stands twice"};
    if (section == "grid") {
      read_grid(item.second, config);
      continue;
    }
    if (std::ranges::none_of(keys(), [&](const Key& key) { return key.section == section; }))
      find_key(section, "", line_of(item.first));
    read_section(section, item.second, config);
  }
  for (const auto& given : overrides) read_override(given, config);
  check(config);
  return config;
}

}  // namespace

std::string_view to_string(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::bf16:
      return "bf16";
    case Precision::fp16:
      return "fp16";
    case Precision::automatic:
      break;
  }
  return "auto";
}

base::Result<Config> parse_config(const std::string& text, const std::vector<std::string>& overrides) {
  const auto refuse = [](std::string message) {
    return base::fail(base::Error::Kind::bad_input, std::move(message), "docs/train.md describes every setting.");
  };
  try {
    return config_of(text, overrides);
  } catch (const Wrong& wrong) {
    return refuse(wrong.place.empty() ? wrong.what : wrong.place + ": " + wrong.what);
  } catch (const YAML::Exception& error) {
    return refuse(fmt::format("line {}: {}", error.mark.line + 1, base::printable(error.msg, 200)));
  }
}

base::Result<Config> read_config(const std::string& path, const std::vector<std::string>& overrides) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  const auto name = base::printable(path, 300);
  if (!file.is_open())
    return base::fail(base::Error::Kind::not_found, name + " cannot be read", "Name a configuration file.");
  if (text.size() > kMostBytes)
    return base::fail(base::Error::Kind::bad_input, name + " is too large for a configuration");
  auto config = parse_config(text, overrides);
  if (!config) config.error().message = name + ": " + config.error().message;
  return config;
}

std::vector<std::pair<std::string, std::string>> settings_of(const Config& config) {
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& key : keys()) found.emplace_back(fmt::format("{}.{}", key.section, key.name), key.tell(config));
  return found;
}

}  // namespace fullwatt::engine
