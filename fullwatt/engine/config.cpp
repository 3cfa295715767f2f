#include "fullwatt/engine/config.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/config_keys.hpp"

namespace fullwatt::engine {
namespace {

constexpr std::size_t kMostBytes = 1U << 20U;

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

void read_map(const YAML::Node& node, const std::string& name, std::map<std::string, std::string>& into) {
  if (!node.IsMap()) throw Wrong{line_of(node), shown(name) + " must have names and values"};
  for (const auto& item : node) into[scalar(item.first, "a name")] = scalar(item.second, "a value");
}

/// Names that are the user's own.
std::map<std::string, std::string>* own_names(const std::string& section, const std::string& name, Config& config) {
  if (section == "data" && name == "fields") return &config.data.fields;
  if (section == "model" && name == "settings") return &config.model.settings;
  return nullptr;
}

void read_section(const std::string& section, const YAML::Node& node, Config& config) {
  if (!node.IsMap()) throw Wrong{line_of(node), "the section " + shown(section) + " must have keys and values"};
  std::set<std::string> seen;
  for (const auto& item : node) {
    const auto& name = scalar(item.first, "a key");
    if (!seen.insert(name).second) throw Wrong{line_of(item.first), shown(name) + " stands twice"};
    if (auto* const own = own_names(section, name, config)) {
      read_map(item.second, name, *own);
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
  const auto section = given.substr(0, dot);
  const auto name = given.substr(dot + 1, equals - dot - 1);
  const auto value = given.substr(equals + 1);
  const auto second_dot = name.find('.');
  if (auto* const own = own_names(section, name.substr(0, second_dot), config); own && second_dot != std::string::npos)
    (*own)[name.substr(second_dot + 1)] = value;
  else
    find_key(section, name, shown(given)).read(config, {value, shown(given)});
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
  if (config.data.normalisation.mean.size() != config.data.normalisation.deviation.size())
    refuse("data.mean and data.std must have a number for each channel, both of them");
  const auto& optimizer = config.optimizer;
  if (optimizer.lr_min > optimizer.lr) refuse("optimizer.lr_min is larger than optimizer.lr");
  if (optimizer.nesterov && (optimizer.name != "sgd" || optimizer.momentum == 0))
    refuse("optimizer.nesterov needs optimizer.name: sgd and a momentum");
  if (!optimizer.fused) refuse("optimizer.fused: false is not possible; this engine's optimisers are fused");
  if (config.model.library.empty() && !config.model.settings.empty())
    refuse("model.settings are for a model of model.library, which is missing");
  if (config.model.embedding % config.model.heads != 0) refuse("model.embedding must be a multiple of model.heads");
}

Config config_of(const std::string& text, const std::vector<std::string>& overrides,
                 const std::vector<std::string>& starting) {
  Config config;
  for (const auto& given : starting) read_override(given, config);
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

Precision precision_for(Precision wanted, int gpu_generation) {
  if (wanted != Precision::automatic) return wanted;
  return gpu_generation == 0 ? Precision::fp32 : gpu_generation >= kAmpere ? Precision::bf16 : Precision::fp16;
}

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

base::Result<Config> parse_config(const std::string& text, const std::vector<std::string>& overrides,
                                  const std::vector<std::string>& starting) {
  const auto refuse = [](std::string message) {
    return base::fail(base::Error::Kind::bad_input, std::move(message), "docs/train.md describes every setting.");
  };
  try {
    return config_of(text, overrides, starting);
  } catch (const Wrong& wrong) {
    return refuse(wrong.place.empty() ? wrong.what : wrong.place + ": " + wrong.what);
  } catch (const YAML::Exception& error) {
    return refuse(fmt::format("line {}: {}", error.mark.line + 1, base::printable(error.msg, 200)));
  }
}

base::Result<Config> read_config(const std::string& path, const std::vector<std::string>& overrides,
                                 const std::vector<std::string>& starting) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  const auto name = base::printable(path, 300);
  if (!file.is_open())
    return base::fail(base::Error::Kind::not_found, name + " cannot be read", "Name a configuration file.");
  if (text.size() > kMostBytes)
    return base::fail(base::Error::Kind::bad_input, name + " is too large for a configuration");
  auto config = parse_config(text, overrides, starting);
  if (!config) config.error().message = name + ": " + config.error().message;
  return config;
}

std::vector<std::pair<std::string, std::string>> settings_of(const Config& config) {
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto& key : keys()) found.emplace_back(fmt::format("{}.{}", key.section, key.name), key.tell(config));
  return found;
}

}  // namespace fullwatt::engine
