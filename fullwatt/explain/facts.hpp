#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/model/run.hpp"

/// What the agent said about a process, typed: docs/run-folder.md lists the kinds. A value of a wrong type counts as
/// not said.
namespace fullwatt::explain {

using Values = std::map<std::string, std::string>;  ///< booleans as true and false, None as none
using Counts = std::map<std::string, double>;

struct GpuFact {
  int index = 0;  ///< torch's
  std::string name;
  std::string uuid;
  std::string capability;  ///< "9.0"
  std::optional<std::uint64_t> memory_bytes;
};

struct LoaderFact {
  int id = 0;
  model::Site site;
  bool trains = false;  ///< the training reads it
  std::string dataset;
  std::optional<std::uint64_t> dataset_length;
  bool iterable = false;
  std::optional<std::uint64_t> batch_size;
  std::optional<int> num_workers;
  std::optional<bool> pin_memory;
  std::optional<int> prefetch_factor;
  std::optional<bool> persistent_workers;
  bool follows_epochs = false;  ///< its data set has `set_epoch`
  std::optional<bool> drop_last;
  std::string shuffle;  ///< the sampler's class
  std::optional<std::uint64_t> batches;
  std::string context;
  std::string collate;

  bool operator==(const LoaderFact&) const = default;
};

struct ModelFact {
  int id = 0;
  std::string class_name;
  std::uint64_t parameters = 0;
  std::uint64_t trainable = 0;
  std::uint64_t bytes = 0;
  Counts dtypes;   ///< parameters by name
  Counts devices;  ///< parameters by name, such as cuda:0
  Counts modules;  ///< by class
  std::optional<bool> training;
  std::optional<bool> compiled;
  std::string wrapper;
  std::optional<double> channels_last;   ///< share of the 4-d weights
  std::optional<double> batchnorm_bias;  ///< convolutions with a bias right before a batch normalisation
  std::optional<double> batch_norms;     ///< layers that normalise by the batch
  model::Site site;                      ///< where the training calls it
};

struct OptimizerFact {
  int id = 0;  ///< as in OptimizerStep::optimizer
  std::string class_name;
  model::Site site;
  std::optional<bool> fused;
  std::optional<bool> foreach;
  std::optional<bool> capturable;
  std::optional<int> groups;
  bool of_torch = false;  ///< no optimiser of somebody's own
  std::optional<std::uint64_t> tensors;
  Counts devices;  ///< parameters by name
  std::optional<double> lr;
};

struct InputFact {
  std::vector<std::uint64_t> shape;
  std::string dtype;
  std::string device;
  std::optional<bool> contiguous;
  std::optional<bool> channels_last;
  std::optional<std::uint64_t> samples;
};

struct AutocastFact {
  std::string device;
  std::string dtype;
  bool enabled = false;
  model::Site site;
};

struct ScalerFact {
  bool enabled = false;
  model::Site site;
};

struct CompileFact {
  model::Site site;
  std::string mode;
  std::string backend;
  std::string dynamic;
  std::optional<bool> fullgraph;
  std::string target;
};

struct CompileStatsFact {
  double frames = 0;
  double recompiles = 0;
  Counts graph_breaks;   ///< by reason
  model::Site break_at;  ///< the line that most of them are at
  double cache_misses = 0;
  double seconds = 0;
};

struct DistributedFact {
  std::string backend;
  int world_size = 1;
  std::optional<bool> find_unused_parameters;
  std::optional<double> bucket_cap_mb;
  std::optional<bool> static_graph;
  std::optional<bool> gradient_as_bucket_view;
};

struct DataParallelFact {
  std::vector<std::string> devices;
  model::Site site;
};

struct ArgumentFact {
  model::Site parser;
  Values values;
  Values defaults;
  std::vector<std::string> given;
};

struct ConfigFileFact {
  std::string path;
  model::Site site;
};

/// Matrix products in half precision whose rows begin where tensor cores cannot read at full width.
struct UnalignedFact {
  std::string dtype;
  double flops = 0;
  std::string sizes;  ///< of the largest
};

struct FlopsFact {
  double forward = 0;
  double backward = 0;
  double total = 0;
  double operations = 0;  ///< of PyTorch's, those included that compute nothing; 0 where nobody counted
  Counts by_dtype;
  Counts by_op;
  Counts bytes;  ///< by device type, read and written by the operations
  std::vector<UnalignedFact> unaligned;
  std::string reason;  ///< why it was not counted; empty when it was
};

struct MemoryFact {
  std::string device;
  std::uint64_t peak_allocated_bytes = 0;
  std::uint64_t peak_reserved_bytes = 0;
  std::optional<std::uint64_t> training_peak_bytes;  ///< allocated outside evaluations
  std::optional<std::uint64_t> card_bytes;
  std::optional<std::uint64_t> allowed_bytes;  ///< that torch may take of them
  std::optional<std::uint64_t> beside_bytes;   ///< taken of the card by others, and by CUDA itself
  double retries = 0;
  double oom = 0;
  double device_allocations = 0;
};

/// How long the samples of the training's loader are, as far as a trial could read them.
struct LengthsFact {
  bool varies = false;
  std::uint64_t read = 0;
  std::uint64_t of = 0;
  std::vector<double> longest;  ///< their indices
};

struct EpochFact {
  int loader = 0;
  std::uint64_t at_ns = 0;
  std::optional<std::uint64_t> batches;
  std::optional<std::uint64_t> number;
};

/// How often a loader had been iterated from the start, and how often it had come to its end.
struct IteratorsFact {
  int loader = 0;
  std::uint64_t at_ns = 0;
  double begun = 0;
  double ended = 0;
};

struct ProfilerFact {
  std::uint64_t at_ns = 0;
  std::string who;
  std::string state;  ///< start, stop
  model::Site site;
};

struct SaveFact {
  std::uint64_t at_ns = 0;
  model::Site site;
  double bytes = 0;
  double seconds = 0;
};

struct AgentFact {
  double calls = 0;
  double errors = 0;
  std::string off;  ///< why it turned itself off; empty when it did not
};

struct DeviceCheckFact {
  Counts parameters;  ///< by device
  Counts inputs;
  Counts buffers;
  std::optional<bool> consistent;
  std::string uuid;
  std::optional<std::uint64_t> allocated_bytes;
};

struct FixFact {
  std::string id;
  std::string state;             ///< waiting, in-force, refused, undone
  std::string text;              ///< what is in force, or why it is not
  std::optional<double> once_s;  ///< what it takes at the beginning, such as packing all samples
};

/// A fix that took turns with itself left out, in a trial of `tune`.
struct TurnFact {
  std::string id;
  std::string state;  ///< begun, measured, refused
  std::string text;
  std::optional<bool> kept;
  std::vector<double> without_ms;  ///< of a step, pair by pair
  std::vector<double> with_ms;
  std::optional<double> once_s;    ///< what its first use took
  std::vector<double> without_ns;  ///< when it was off: beginning and end, again and again
  std::vector<double> with_ns;
};

/// What a plan that is made from this run would be made for.
struct TargetFact {
  std::string torch;
  std::string gpu;
  std::string model;
  std::string script;
};

struct FixOverrideFact {
  std::string id;
  std::string what;  ///< what the program set, such as "threads = 2"
  model::Site site;
};

struct ProcessFact {
  int pid = 0;
  int parent = 0;
  std::optional<int> rank;
  std::optional<int> local_rank;
  std::optional<int> world_size;
  std::vector<std::string> argv;
  std::string executable;
  std::string python;
  std::string main;
  std::vector<std::string> prefixes;
  std::string torch;
  std::string cuda;
  std::string cudnn;
};

/// All facts of one process. Lists keep one entry an id, the newest; where a kind has no id, every one that was said.
struct ProcessFacts {
  ProcessFact process;
  std::vector<GpuFact> gpus;
  std::vector<LoaderFact> loaders;
  std::vector<ModelFact> models;
  std::vector<OptimizerFact> optimizers;
  std::optional<InputFact> input;
  std::string batch_device;                    ///< where the loader's first batch was
  std::vector<std::string> padding_functions;  ///< of the program's own, whose batches differ in size
  std::map<std::string, Values> settings;      ///< by when: first-step, window, end
  Values environment;
  std::vector<AutocastFact> autocasts;
  std::optional<ScalerFact> scaler;
  std::vector<CompileFact> compiles;
  std::optional<CompileStatsFact> compile_stats;
  double graph_captures = 0;
  std::optional<DistributedFact> distributed;
  std::optional<DataParallelFact> data_parallel;
  std::vector<ArgumentFact> arguments;
  std::vector<ConfigFileFact> config_files;
  std::optional<FlopsFact> flops;
  Counts attention;  ///< calls by backend in the counted step
  std::optional<MemoryFact> memory;
  std::optional<LengthsFact> lengths;
  std::vector<EpochFact> epochs;
  std::vector<IteratorsFact> iterators;
  std::vector<ProfilerFact> profilers;
  std::vector<model::Site> evaluations;  ///< where Module.eval() was called
  std::vector<SaveFact> saves;
  std::optional<AgentFact> agent;
  std::optional<DeviceCheckFact> device_check;
  std::vector<FixFact> fixes;  ///< of the plan that the run was given
  std::vector<FixOverrideFact> fix_overrides;
  std::vector<TurnFact> turns;
  std::optional<TargetFact> target;

  /// A setting as it was last seen in force; nothing when it was never seen.
  std::optional<std::string> setting(const std::string& name) const;
  std::optional<bool> flag(const std::string& name) const;
  std::optional<std::string> variable(const std::string& name) const;
  /// Whether batches come from their loader on a GPU, where no worker process could have made them.
  bool loads_onto_gpu() const;
  /// The loader that the training iterates: of those that it was seen to read the one that gave the most batches, else
  /// the first.
  const LoaderFact* training_loader() const;
  /// The model with the most parameters.
  const ModelFact* largest_model() const;
  /// Parameters or inputs lie on a GPU.
  bool on_gpu() const;
  /// A fix of the plan that the run was given.
  bool has_in_force(std::string_view fix) const;
};

/// As the agent wrote them.
ProcessFacts parse_facts(const model::TrainingProcess& process);

}  // namespace fullwatt::explain
