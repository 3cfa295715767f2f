#include "fullwatt/engine/config.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
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

/// Keys below which the names are the user's own, and how a value of such a name is read.
using ReadOwn = std::function<void(Config& config, const std::string& name, const Value& value)>;
const std::map<std::string, ReadOwn>& own_names() {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  static const std::map<std::string, ReadOwn> kAll{
      {"data.fields", [](auto& config, auto& name, auto& value) { config.data.fields[name] = value.text; }},
      {"data.limits",
       [](auto& config, auto& name, auto& value) { config.data.limits[name] = whole_number(value, 1, kMost); }},
      {"model.settings", [](auto& config, auto& name, auto& value) { config.model.settings[name] = value.text; }}};
  return kAll;
}

void read_own(const YAML::Node& node, const std::string& setting, const ReadOwn& read, Config& config) {
  if (!node.IsMap()) throw Wrong{line_of(node), shown(setting) + " must have names and values"};
  for (const auto& item : node) {
    const auto& name = scalar(item.first, "a name");
    read(config, name, {scalar(item.second, "a value"), line_of(item.second) + ", " + setting + "." + name});
  }
}

/// Where each section and setting was given: a line of the file, or an override.
using Places = std::map<std::string, std::string>;

void read_section(const std::string& section, const YAML::Node& node, Config& config, Places& places) {
  if (!node.IsMap()) throw Wrong{line_of(node), "the section " + shown(section) + " must have keys and values"};
  std::set<std::string> seen;
  for (const auto& item : node) {
    const auto& name = scalar(item.first, "a key");
    if (!seen.insert(name).second) throw Wrong{line_of(item.first), shown(name) + " stands twice"};
    const auto setting = section + "." + name;
    places[setting] = line_of(item.first);
    if (const auto own = own_names().find(setting); own != own_names().end()) {
      read_own(item.second, setting, own->second, config);
      continue;
    }
    const auto& key = find_key(section, name, line_of(item.first));
    key.read(config, {text_of(item.second, name, key.takes_list), line_of(item.second) + ", " + setting});
  }
}

void read_override(const std::string& given, Config& config, Places& places) {
  const auto equals = given.find('=');
  const auto dot = given.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals)
    throw Wrong{shown(given), "an override looks like train.batch_size=128"};
  const auto section = given.substr(0, dot);
  const auto name = given.substr(dot + 1, equals - dot - 1);
  const auto value = given.substr(equals + 1);
  const auto second_dot = name.find('.');
  const auto setting = section + "." + name.substr(0, second_dot);
  places[setting] = shown(given);
  if (const auto own = own_names().find(setting); own != own_names().end() && second_dot != std::string::npos)
    own->second(config, name.substr(second_dot + 1), {value, shown(given)});
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
      Places ignored;
      values.push_back(scalar(value, "a value"));
      try {
        read_override(setting + "=" + values.back(), tried, ignored);
      } catch (const Wrong& wrong) {
        throw Wrong{line_of(value), wrong.place + ": " + wrong.what};
      }
    }
    config.grid.emplace_back(setting, std::move(values));
  }
  constexpr std::size_t kMostTrials = 1000;
  std::size_t trials = 1;
  for (const auto& [setting, values] : config.grid) trials = std::min(kMostTrials + 1, trials * values.size());
  if (trials > kMostTrials)
    throw Wrong{line_of(node), fmt::format("the grid has more than {} trainings", kMostTrials), "List fewer values."};
}

/// All the places of these settings that are known: the mistake may be in any of them.
std::string places_of(const std::vector<std::string>& settings, const Places& places) {
  std::vector<std::string> found;
  for (const auto& setting : settings) {
    const auto place = places.find(setting);
    if (place != places.end() && std::ranges::find(found, place->second) == found.end()) found.push_back(place->second);
  }
  return base::join(found, " and ");
}

/// What each setting allows by itself and they do not together.
void check(const Config& config, const Places& places) {
  const auto refuse = [&](bool is, const std::vector<std::string>& settings, std::string what, std::string remedy) {
    if (is) throw Wrong{places_of(settings, places), std::move(what), std::move(remedy)};
  };
  const auto& model = config.model;
  const auto& data = config.data;
  const auto& optimizer = config.optimizer;
  refuse(model.name.empty(), {"model", "model.name"}, "model.name is missing: which model is to be trained?",
         "Name one, as in model: {name: lstm}; docs/train.md lists them.");
  refuse(model.library.empty() && !model.settings.empty(), {"model.settings"},
         "model.settings are for a model of model.library, which is missing",
         "Name the library under model.library, or leave out model.settings.");
  refuse(model.embedding % model.heads != 0, {"model.embedding", "model.heads"},
         fmt::format("model.embedding: {} is no multiple of model.heads: {}", model.embedding, model.heads),
         fmt::format("Take model.embedding: {}, or another number of heads.",
                     (model.embedding / model.heads + 1) * model.heads));
  refuse(data.folder.empty(), {"data", "data.folder"}, "data.folder is missing: where are the samples?",
         "Name the folder, as in data: {folder: samples}.");
  refuse(data.format == "images" && !data.fields.empty(), {"data.fields", "data.format"},
         "data.fields is for .npy files; with data.format: images the fields are images and labels",
         "Leave out data.fields, or take data.format: npy.");
  refuse(data.normalisation.mean.size() != data.normalisation.deviation.size(), {"data.mean", "data.std"},
         fmt::format("data.mean has {} numbers and data.std {}", data.normalisation.mean.size(),
                     data.normalisation.deviation.size()),
         "Give both, with a number for each channel, or neither.");
  refuse(optimizer.lr_min > optimizer.lr, {"optimizer.lr_min", "optimizer.lr"},
         fmt::format("optimizer.lr_min: {:g} is larger than optimizer.lr: {:g}", optimizer.lr_min, optimizer.lr),
         "The rate falls from lr to lr_min: take a smaller lr_min or a larger lr.");
  refuse(optimizer.nesterov && (optimizer.name != "sgd" || optimizer.momentum == 0),
         {"optimizer.nesterov", "optimizer.name", "optimizer.momentum"},
         "optimizer.nesterov needs optimizer.name: sgd and a momentum",
         "Leave out optimizer.nesterov, or take optimizer: {name: sgd, momentum: 0.9}.");
  refuse(!optimizer.fused, {"optimizer.fused"},
         "optimizer.fused: false is not possible; this engine's optimisers are fused", "Leave out optimizer.fused.");
}

Config config_of(const std::string& text, const std::vector<std::string>& overrides,
                 const std::vector<std::string>& starting) {
  Config config;
  Places places;
  for (const auto& given : starting) read_override(given, config, places);
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
    places[section] = line_of(item.first);
    read_section(section, item.second, config, places);
  }
  for (const auto& given : overrides) read_override(given, config, places);
  check(config, places);
  return config;
}

}  // namespace

Precision precision_for(Precision wanted, int gpu_generation, bool is_slower_in_bf16) {
  if (wanted != Precision::automatic) return wanted;
  if (gpu_generation == 0 || (gpu_generation >= kAmpere && is_slower_in_bf16)) return Precision::fp32;
  return gpu_generation >= kAmpere ? Precision::bf16 : Precision::fp16;
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
  const auto refuse = [](std::string message, std::string remedy = kDescribed) {
    return base::fail(base::Error::Kind::bad_input, std::move(message), std::move(remedy));
  };
  try {
    return config_of(text, overrides, starting);
  } catch (const Wrong& wrong) {
    return refuse(wrong.place.empty() ? wrong.what : wrong.place + ": " + wrong.what, wrong.remedy);
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
    return base::fail(base::Error::Kind::bad_input, name + " is too large for a configuration",
                      "Name a configuration file; one has less than 1 MB.");
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
