#pragma once

#include "fullwatt/api/optimized_loader.hpp"
#include "fullwatt/engine/batches.hpp"

namespace fullwatt::api {

/// Where the samples of a loader come from.
struct Samples {
  std::unique_ptr<engine::DataSet> data;
  Fields kept;                                  ///< memory that the data set reads, where it is a program's
  std::function<Fields(const Fields&)> unpack;  ///< where a batch is not yet as the program knows it
};

Samples from_arrays(const Fields& arrays);
Samples from_source(SampleSource source);

/// An endless sequence of batches, epoch after epoch.
struct OptimizedLoader::State {
  State(Samples source, const engine::LoaderOptions& options, engine::Delivery delivery);

  base::Result<Fields> take();
  void seek(std::uint64_t to_epoch, std::uint64_t to_batch);

  Samples samples;
  engine::LoaderOptions options;
  engine::Delivery delivery;
  std::uint64_t per_epoch = 0;
  std::uint64_t epoch = 0;  ///< of the next batch
  std::uint64_t batch = 0;
  Fields current;
  std::unique_ptr<engine::Batches> batches;  ///< made when one is asked for
};

}  // namespace fullwatt::api
