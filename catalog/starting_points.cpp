#include "catalog/starting_points.hpp"

#include <algorithm>

#include "catalog/tables.hpp"

namespace fullwatt::catalog {

std::span<const StartingCard> starting_cards() {
  return tables().starting_cards;
}

std::span<const StartingData> starting_data() {
  return tables().starting_data;
}

StartingPoint starting_point(double memory_gb, std::uint64_t samples) {
  const auto card = *std::ranges::find_if(starting_cards(), [&](const auto& row) { return memory_gb >= row.least_gb; });
  StartingPoint point{card.batch, card.workers, card.prefetch, card.on_gpu_percent, card.recompute, card.such_as};
  if (samples == 0) return point;
  const auto data =
      *std::ranges::find_if(starting_data(), [&](const auto& row) { return samples >= row.least_samples; });
  point.batch = point.batch * data.batch_percent / 100;
  point.workers = std::max(1, point.workers * data.workers_percent / 100);
  point.prefetch = std::max(point.prefetch, data.prefetch);
  return point;
}

}  // namespace fullwatt::catalog
