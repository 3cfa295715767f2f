#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fullwatt/base/error.hpp"

/// What `fullwatt train` is told: a file in YAML, and overrides from the command line.
namespace fullwatt::engine {

enum class Precision { fp32, bf16, fp16, automatic };
std::string_view to_string(Precision precision);

struct ModelConfig {
  std::string name;  ///< of a model in models/
  std::int64_t channels = 24;
  std::int64_t features = 12;
  std::int64_t hidden = 64;
  std::int64_t layers = 2;
  double dropout = 0;
};

struct DataConfig {
  std::string folder;
  std::map<std::string, std::string> fields;  ///< of a sample, each with the files that hold it
  std::int64_t workers = 0;                   ///< threads; 0: as many as the machine bears
  std::int64_t ahead = 3;                     ///< batches that are ready
  bool shuffle = true;
};

struct TrainConfig {
  std::int64_t epochs = 1;
  std::int64_t batch_size = 256;
  std::int64_t accumulation = 1;
  std::int64_t seed = 0;
  std::int64_t log_every = 50;
  Precision amp = Precision::automatic;
  bool channels_last = true;
  double clip = 0;  ///< of the gradients' norm; 0: none
};

struct HardwareConfig {
  std::string device = "auto";  ///< auto, cpu or cuda
  bool cudnn_benchmark = true;
  bool allow_tf32 = true;
  bool deterministic = false;
};

struct OptimizerConfig {
  double lr = 3e-4;
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

struct OutputConfig {
  std::string folder = "checkpoints";
  std::int64_t every_epochs = 1;
};

struct Config {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  HardwareConfig hardware;
  OptimizerConfig optimizer;
  OutputConfig output;
};

/// Whatever is wrong is named with its line, the reason, and what was probably meant. `overrides` are such as
/// "train.batch_size=128".
base::Result<Config> parse_config(const std::string& text, const std::vector<std::string>& overrides = {});
base::Result<Config> read_config(const std::string& path, const std::vector<std::string>& overrides = {});

/// Every setting as it is, in the order of the file: section.key and value.
std::vector<std::pair<std::string, std::string>> settings_of(const Config& config);

}  // namespace fullwatt::engine
