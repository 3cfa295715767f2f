#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/base/error.hpp"

/// What `fullwatt train` is told: a file in YAML, and overrides from the command line.
namespace fullwatt::engine {

enum class Precision { fp32, bf16, fp16, automatic };
/// Since these, cards have bfloat16 and TF32 on tensor cores.
constexpr int kAmpere = 8;
/// What `automatic` is on a GPU of that generation, or on the CPU: 0. Anything else stays what it is.
Precision precision_for(Precision wanted, int gpu_generation, bool is_slower_in_bf16 = false);
std::string_view to_string(Precision precision);

struct ModelConfig {
  std::string name;                             ///< of a model in models/, or any where there is a library
  std::string library;                          ///< a shared library with a model of the user's own
  std::map<std::string, std::string> settings;  ///< for that one
  std::int64_t channels = 24;
  std::int64_t features = 12;
  std::int64_t hidden = 64;
  std::int64_t layers = 2;
  double dropout = 0;
  std::int64_t classes = 1000;
  std::int64_t width = 64;
  std::int64_t vocabulary = 50257;
  std::int64_t context = 1024;
  std::int64_t heads = 12;
  std::int64_t embedding = 768;
};

/// Of each channel of a picture; empty: pictures stay as they are.
struct Normalisation {
  std::vector<double> mean;
  std::vector<double> deviation;
};

struct DataConfig {
  std::string folder;
  std::string format = "npy";  ///< or images: a folder of them for each class
  std::int64_t image_height = 224;
  std::int64_t image_width = 224;
  std::map<std::string, std::string> fields;  ///< of a sample, each with the files that hold it
  Normalisation normalisation;
  std::map<std::string, std::int64_t> limits;  ///< of fields whose numbers count something, from 0 to below this
  bool shuffle = true;
  /// A data set that is not larger is kept on the device; nothing: where the device has room for it.
  std::optional<double> device_cache_gb = 0;
};

/// Factors, of which one is drawn for each picture.
struct Range {
  double least = 1;
  double most = 1;
  bool changes() const { return least != 1 || most != 1; }
};

/// How pictures are changed at random while a model is trained.
struct AugmentConfig {
  double flip = 0;                     ///< the share that is seen from left to right
  std::int64_t shift = 0;              ///< pixels at most, each way
  std::string padding = "reflection";  ///< or zeros: what comes in from the edges
  Range brightness;
  Range contrast;
  double noise = 0;  ///< its standard deviation

  bool moves() const { return flip > 0 || shift > 0; }
  bool colours() const { return brightness.changes() || contrast.changes() || noise > 0; }
};

struct TrainConfig {
  std::int64_t epochs = 1;
  std::int64_t batch_size = 256;
  std::int64_t accumulation = 1;
  std::int64_t seed = 0;
  std::int64_t log_every = 50;
  std::int64_t num_workers = 0;      ///< threads of the loader; 0: as many as the machine bears
  std::int64_t prefetch_factor = 4;  ///< batches that are in memory at once
  bool pin_memory = true;
  bool non_blocking = true;
  bool compile_model = true;  ///< the whole step as a graph, and fused kernels: LibTorch has no compiler
  std::string compile_mode = "default";
  Precision amp = Precision::automatic;
  bool activation_checkpointing = false;  ///< compute activations again in backward, which needs less memory
  bool channels_last = true;
  double clip = 0;  ///< of the gradients' norm; 0: none

  bool wants_graph() const { return compile_model && compile_mode != "max-autotune-no-cudagraphs"; }
};

struct HardwareConfig {
  std::string device = "auto";  ///< auto, cpu or cuda
  bool cudnn_benchmark = true;
  bool allow_tf32 = true;
  bool deterministic = false;
  std::int64_t timeout_seconds = 600;  ///< that processes wait for each other
};

struct OptimizerConfig {
  std::string name = "adamw";  ///< or sgd
  double lr = 3e-4;
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double momentum = 0.9;  ///< of sgd
  bool nesterov = false;
  bool fused = true;
  std::string schedule = "constant";  ///< or linear, cosine: down to lr_min over the whole training
  double lr_min = 0;
  std::int64_t warmup_steps = 0;
};

struct OutputConfig {
  std::string folder = "checkpoints";
  std::int64_t every_epochs = 1;
  bool tensorboard = true;
};

struct Config {
  ModelConfig model;
  DataConfig data;
  AugmentConfig augment;
  TrainConfig train;
  HardwareConfig hardware;
  OptimizerConfig optimizer;
  OutputConfig output;
  std::vector<std::pair<std::string, std::vector<std::string>>> grid;  ///< settings with values to be tried
};

/// Whatever is wrong is named with its line, the reason, and what was probably meant. `overrides` are such as
/// "train.batch_size=128"; `starting` are the same, for what the text leaves open.
base::Result<Config> parse_config(const std::string& text, const std::vector<std::string>& overrides = {},
                                  const std::vector<std::string>& starting = {});
base::Result<Config> read_config(const std::string& path, const std::vector<std::string>& overrides = {},
                                 const std::vector<std::string>& starting = {});

/// Every setting as it is, in the order of the file: section.key and value.
std::vector<std::pair<std::string, std::string>> settings_of(const Config& config);

}  // namespace fullwatt::engine
