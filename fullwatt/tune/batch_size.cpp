#include "fullwatt/tune/batch_size.hpp"

#include <algorithm>
#include <bit>
#include <optional>

namespace fullwatt::tune {
namespace {

constexpr std::uint64_t kMegabyte = 1ULL << 20;
constexpr std::uint64_t kContextBytes = 600 * kMegabyte;  ///< CUDA's context, libraries, and what jumps with the batch
constexpr double kReserve = 0.08;                         ///< of the card, for gaps between allocations
constexpr double kCaution = 1.15;                         ///< growth may be this much more than predicted
constexpr double kPlateau = 0.03;                         ///< less than this is no gain
constexpr std::uint64_t kEven = 8;                        ///< tensor cores like multiples
constexpr double kWorthIt = 1.1;                          ///< times the batch before: less is not worth a probe
constexpr int kMostProbes = 12;

std::uint64_t rounded_down(std::uint64_t batch) {
  return batch > kEven ? batch - batch % kEven : batch;
}

bool by_batch(const BatchProbe& a, const BatchProbe& b) {
  return a.batch < b.batch;
}

/// The next batch to try after the largest one so far: twice of it, or what still fits.
std::optional<std::uint64_t> next_batch(const std::vector<BatchProbe>& probes, std::uint64_t usable) {
  const auto& last = *std::ranges::max_element(probes, by_batch);
  const auto line = memory_line(probes);
  if (last.peak_bytes >= usable) return std::nullopt;
  const double room = static_cast<double>(usable - last.peak_bytes) / kCaution;
  const double more = line.sample_bytes > 0 ? room / line.sample_bytes : static_cast<double>(last.batch);
  if (more >= static_cast<double>(last.batch)) return 2 * last.batch;
  const auto batch = rounded_down(last.batch + static_cast<std::uint64_t>(more));
  if (static_cast<double>(batch) < kWorthIt * static_cast<double>(last.batch)) return std::nullopt;
  return batch;
}

/// Two doublings in a row that brought nothing.
bool is_flat(const std::vector<BatchProbe>& probes) {
  if (probes.size() < 3) return false;
  const auto& earlier = probes[probes.size() - 3];
  return std::all_of(probes.end() - 2, probes.end(), [&](const auto& probe) {
    return probe.samples_per_second < earlier.samples_per_second * (1 + kPlateau);
  });
}

const BatchProbe& smallest_on_plateau(std::vector<BatchProbe>& probes) {
  const auto best = std::ranges::max(probes, {}, &BatchProbe::samples_per_second).samples_per_second;
  std::ranges::sort(probes, by_batch);
  return *std::ranges::find_if(probes,
                               [&](const auto& probe) { return probe.samples_per_second >= best * (1 - kPlateau); });
}

}  // namespace

MemoryLine memory_line(std::span<const BatchProbe> probes) {
  if (probes.empty()) return {};
  std::vector<BatchProbe> sorted(probes.begin(), probes.end());
  std::ranges::sort(sorted, by_batch);
  const auto& last = sorted.back();
  const auto peak = static_cast<double>(last.peak_bytes);
  if (sorted.size() < 2 || sorted[sorted.size() - 2].batch == last.batch)
    return {0, peak / static_cast<double>(std::max<std::uint64_t>(last.batch, 1))};
  const auto& before = sorted[sorted.size() - 2];
  const double slope =
      std::max(0.0, (peak - static_cast<double>(before.peak_bytes)) / static_cast<double>(last.batch - before.batch));
  return {peak - slope * static_cast<double>(last.batch), slope};
}

std::uint64_t usable_bytes(std::uint64_t card_bytes, std::uint64_t used_by_others) {
  const auto reserve =
      std::max(kContextBytes, static_cast<std::uint64_t>(kReserve * static_cast<double>(card_bytes))) + used_by_others;
  return card_bytes > reserve ? card_bytes - reserve : 0;
}

std::uint64_t largest_batch(const MemoryLine& line, std::uint64_t bytes) {
  const double room = static_cast<double>(bytes) - line.fixed_bytes;
  if (room < line.sample_bytes || room <= 0) return 0;
  constexpr double kMost = 1U << 24U;
  return static_cast<std::uint64_t>(line.sample_bytes > 0 ? std::min(room / line.sample_bytes, kMost) : kMost);
}

std::uint64_t estimated_batch(std::uint64_t model_bytes, std::uint64_t card_bytes) {
  constexpr double kCopies = 4;                        // weights, gradients, two moments of Adam
  constexpr double kLeastSample = 16.0 * (1U << 20U);  // activations of one sample
  constexpr std::uint64_t kMost = 1024;
  const auto model = static_cast<double>(model_bytes);
  const MemoryLine line{kCopies * model, std::max(kLeastSample, model)};
  const auto largest = std::min(largest_batch(line, usable_bytes(card_bytes)), kMost);
  return std::bit_floor(largest);
}

Accumulation accumulate(std::uint64_t effective, std::uint64_t largest) {
  if (effective == 0 || largest == 0) return {};
  auto steps = (effective + largest - 1) / largest;
  while (effective % steps != 0) ++steps;  // at the latest with parts of one sample
  return {effective / steps, steps};
}

base::Result<BatchChoice> find_batch(const ProbeBatch& probe, std::uint64_t start, std::uint64_t usable) {
  BatchChoice choice;
  for (std::optional<std::uint64_t> batch = std::max<std::uint64_t>(start, 1); batch;) {
    const auto predicted =
        choice.probes.size() >= 2 ? std::optional(memory_line(choice.probes).at(*batch)) : std::nullopt;
    auto measured = probe(*batch);
    if (!measured && choice.probes.empty()) return std::unexpected(measured.error());
    if (!measured) break;
    measured->predicted_bytes = predicted;
    choice.probes.push_back(*measured);
    const bool enough = is_flat(choice.probes) || choice.probes.size() >= kMostProbes;
    batch = enough ? std::nullopt : next_batch(choice.probes, usable);
  }
  choice.memory = memory_line(choice.probes);
  auto sorted = choice.probes;
  const auto& best = smallest_on_plateau(sorted);
  choice.batch = best.batch;
  choice.largest = std::max(largest_batch(choice.memory, usable), sorted.back().batch);
  choice.why = best.batch == sorted.back().batch ? "it is the largest that was tried, and the fastest"
                                                 : "larger ones are not faster";
  return choice;
}

}  // namespace fullwatt::tune
