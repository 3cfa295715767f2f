#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fullwatt/api/gpu_diagnostic_tool.hpp"

/// Starting values for a training on the GPU of this machine, for C++ programs. `fullwatt tune` corrects them by
/// measurement where a program can be started again and again.
namespace fullwatt::api {

/// The GPU to train on.
struct OptimizedDevice {
  std::optional<GpuStatus> gpu;  ///< none: there is no usable one
  std::string reason;
  std::string environment;  ///< lines for a shell that select it
};

struct MixedPrecisionConfig {
  bool enabled = false;
  std::string dtype = "float32";  ///< bfloat16, float16 or float32
  bool needs_scaler = false;      ///< float16 needs one for its gradients, bfloat16 does not
  bool tf32 = false;              ///< for what stays in float32
  std::string reason;
};

struct MemoryConfig {
  std::uint64_t usable_bytes = 0;       ///< of the card, for one training
  std::string allocator;                ///< value of PYTORCH_ALLOC_CONF
  bool pinned_memory = true;            ///< batches in pinned memory
  bool cache_samples = false;           ///< a data set of a few gigabytes may stay on the card
  bool activation_checkpoints = false;  ///< a card so small that time is well spent for memory
  std::string reason;
};

/// Where settings begin on this card, before anything is measured.
struct StartingValues {
  int batch = 0;
  int workers = 0;  ///< of the loader
  int prefetch = 0;
  std::string reason;
};

/// What some steps with one batch size took.
struct BatchMeasurement {
  std::uint64_t batch = 0;
  std::uint64_t peak_bytes = 0;  ///< of device memory, all that the process holds, with the longest batch that may come
  double samples_per_second = 0;
  std::uint64_t evaluation_bytes = 0;  ///< the same while it evaluates, whatever the batch; 0 where it does not
  bool ran_out = false;                ///< of memory; nothing else need be told then
};

struct BatchSize {
  std::uint64_t batch = 0;         ///< 0 where even the first ran out of memory
  std::uint64_t accumulation = 1;  ///< batches whose gradients make one step
  std::uint64_t largest = 0;       ///< that fits, as predicted
  double predicted_bytes = 0;      ///< that the chosen one takes
  std::vector<BatchMeasurement> tried;
  std::string reason;
};

/// Requirement O1.
class GpuOptimizer {
 public:
  explicit GpuOptimizer(DiagnosticOptions options = {});
  ~GpuOptimizer();
  GpuOptimizer(GpuOptimizer&&) noexcept;
  GpuOptimizer& operator=(GpuOptimizer&&) noexcept;

  /// These throw std::runtime_error when a saved machine cannot be read.
  OptimizedDevice optimize_device_selection();
  MixedPrecisionConfig configure_mixed_precision();
  MemoryConfig setup_memory_optimization();
  /// For a data set of so many samples; 0: not known.
  StartingValues starting_values(std::uint64_t samples = 0);

  /// From the bytes of a model's parameters and of the card's memory: a batch that should fit an ordinary network
  /// trained with Adam in float32, a power of two; 0 when the model itself does not fit. An estimate, no more.
  static std::uint64_t optimize_batch_size(std::uint64_t model_size, std::uint64_t gpu_memory);

  /// By training: `measure(batch)` does some steps and tells what they took. It begins with `start`, which must fit (or
  /// half of it, where that is needed to tell), and is never called with a batch that is predicted not to fit into
  /// `gpu_memory` bytes (0: what the selected GPU has free). Should one run out of memory all the same, a smaller one
  /// is tried. The smallest batch is chosen that is as fast as any. What `measure` throws goes through.
  BatchSize optimize_batch_size(const std::function<BatchMeasurement(std::uint64_t batch)>& measure,
                                std::uint64_t start, std::uint64_t gpu_memory = 0);
  /// The same training in less memory, or faster: a step still has `effective` samples, in equal batches no larger than
  /// the one that was found. Batch normalisation sees the batches, not the step: its statistics change with them.
  static BatchSize keep_effective_batch(BatchSize found, std::uint64_t effective);

 private:
  std::unique_ptr<GpuDiagnosticTool> tool_;
};

}  // namespace fullwatt::api
