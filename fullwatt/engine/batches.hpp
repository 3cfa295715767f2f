#pragma once

#include <ATen/core/Tensor.h>

#include "fullwatt/engine/data/loader.hpp"
#include "fullwatt/engine/limits.hpp"
#include "fullwatt/engine/task.hpp"

namespace fullwatt::engine {

/// Batches as tensors on the device that trains, in the loader's order, in the types that the data set has.
class Batches {
 public:
  Batches() = default;
  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;
  virtual ~Batches() = default;

  /// Good until the next one is asked for; nothing after the last epoch.
  virtual base::Result<std::optional<Fields>> next() = 0;
};

/// How batches come to the device.
struct Delivery {
  at::Device device = at::kCPU;
  bool is_pinned = true;  ///< host memory that a GPU reads by itself, which copies beside its work need
  Limits limits;
  std::size_t cache_bytes = 0;  ///< of the device: a data set that fits is kept there, and batches are gathered there
};

base::Result<std::unique_ptr<Batches>> make_batches(const DataSet& data, const LoaderOptions& options,
                                                    const Delivery& delivery);
/// Whether these samples would be kept on the device.
bool is_cached(const DataSet& data, const Delivery& delivery);
/// What samples may take of a device: as wanted, or where nothing is said half of what is free, so that the training
/// has as much. Nothing on a CPU, whose memory holds them already.
std::size_t cache_room(std::optional<double> wanted_gb, std::size_t free_bytes);

}  // namespace fullwatt::engine
