#include "fullwatt/engine/config_keys.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::engine {
namespace {

double number(const Value& value, double least, double most, std::string_view kind = "a number") {
  double found = 0;
  const auto* const end = value.text.data() + value.text.size();
  const auto [stopped, error] = std::from_chars(value.text.data(), end, found);
  if (error != std::errc{} || stopped != end || !(found >= least && found <= most))
    value.refuse(fmt::format("it must be {} from {:g} to {:g}", kind, least, most));
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

std::vector<double> numbers(const Value& value, double least, double most) {
  std::vector<double> found;
  for (const auto& part : base::split(value.text, ','))
    found.push_back(number({std::string(base::trim(part)), value.place}, least, most));
  return found;
}

/// Two numbers, as in "0.9, 0.999".
void read_betas(Config& config, const Value& value) {
  if (std::ranges::count(value.text, ',') != 1)
    value.refuse("it must be two numbers from 0 to 1, such as [0.9, 0.999]");
  const auto betas = numbers(value, 0, 0.999999999);
  config.optimizer.beta1 = betas[0];
  config.optimizer.beta2 = betas[1];
}

/// The least and the largest factor, as in "0.8, 1.2".
Key range(std::string_view name, Range AugmentConfig::* member) {
  const auto read = [=](Config& config, const Value& value) {
    constexpr double kMost = 100;
    if (std::ranges::count(value.text, ',') != 1) value.refuse("it must be two factors, such as [0.8, 1.2]");
    const auto ends = numbers(value, 0, kMost);
    if (ends[0] > ends[1]) value.refuse("the smaller factor must come first");
    config.augment.*member = {ends[0], ends[1]};
  };
  const auto tell = [=](const Config& config) {
    const auto& given = config.augment.*member;
    return fmt::format("{:g}, {:g}", given.least, given.most);
  };
  return {"augment", name, read, tell, true};
}

/// A number for each channel, or none.
Key channels(std::string_view name, std::vector<double> Normalisation::* member, double least) {
  const auto read = [=](Config& config, const Value& value) {
    constexpr double kMost = 1e6;
    config.data.normalisation.*member = value.text == "none" ? std::vector<double>{} : numbers(value, least, kMost);
  };
  const auto tell = [=](const Config& config) {
    const auto& given = config.data.normalisation.*member;
    return given.empty() ? "none" : fmt::format("{:g}", fmt::join(given, ", "));
  };
  return {"data", name, read, tell, true};
}

/// Gigabytes, or auto.
Key device_cache() {
  const auto read = [](Config& config, const Value& value) {
    constexpr double kMost = 1e5;
    config.data.device_cache_gb =
        value.text == "auto" ? std::nullopt : std::optional(number(value, 0, kMost, "auto, or a number"));
  };
  const auto tell = [](const Config& config) {
    const auto& given = config.data.device_cache_gb;
    return given ? fmt::format("{:g}", *given) : "auto";
  };
  return {"data", "device_cache_gb", read, tell};
}

}  // namespace

std::string shown(std::string_view text) {
  return "'" + base::printable(text, 60) + "'";
}

std::int64_t whole_number(const Value& value, std::int64_t least, std::int64_t most) {
  const auto number = base::number<std::int64_t>(value.text);
  if (!number || *number < least || *number > most)
    value.refuse(fmt::format("it must be a whole number from {} to {}", least, most));
  return *number;
}

const std::vector<Key>& keys() {
  static const std::vector<Key> kAll{
      text("model", "name", &Config::model, &ModelConfig::name),
      text("model", "library", &Config::model, &ModelConfig::library),
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
      channels("mean", &Normalisation::mean, -1e6),
      channels("std", &Normalisation::deviation, 1e-6),
      flag("data", "shuffle", &Config::data, &DataConfig::shuffle),
      device_cache(),
      real("augment", "flip", &Config::augment, &AugmentConfig::flip, 0, 1),
      whole("augment", "shift", &Config::augment, &AugmentConfig::shift, 0, 16383),
      text("augment", "padding", &Config::augment, &AugmentConfig::padding, {"reflection", "zeros"}),
      range("brightness", &AugmentConfig::brightness),
      range("contrast", &AugmentConfig::contrast),
      real("augment", "noise", &Config::augment, &AugmentConfig::noise, 0, 1e6),
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
      flag("train", "activation_checkpointing", &Config::train, &TrainConfig::activation_checkpointing),
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

}  // namespace fullwatt::engine
