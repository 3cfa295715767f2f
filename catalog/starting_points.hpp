#pragma once

#include <cstdint>
#include <span>
#include <string_view>

/// Where settings begin, by card and by data: `starting_points.yaml`, whose head explains the fields.
namespace fullwatt::catalog {

struct StartingCard {
  double least_gb;
  int batch;
  int workers;
  int prefetch;
  int on_gpu_percent;
  bool recompute;
  std::string_view such_as;
};

struct StartingData {
  std::uint64_t least_samples;
  int batch_percent;
  int workers_percent;
  int prefetch;
};

struct StartingPoint {
  int batch = 0;
  int workers = 0;
  int prefetch = 0;
  int on_gpu_percent = 0;  ///< of the card's memory, for samples
  bool recompute = false;  ///< activations, to save memory
  std::string_view such_as;
};

/// For a card of so many gigabytes and a data set of so many samples; 0: not known.
StartingPoint starting_point(double memory_gb, std::uint64_t samples = 0);

std::span<const StartingCard> starting_cards();
std::span<const StartingData> starting_data();

}  // namespace fullwatt::catalog
