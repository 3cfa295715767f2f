#include "fullwatt/tune/batch_size.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
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
constexpr std::size_t kMostProbes = 12;
constexpr double kUnseen = 0.2;   ///< of the memory, for batches longer than any that was seen
constexpr double kUneven = 0.05;  ///< rates of one batch differ by as much
constexpr double kLess = 0.85;  ///< of what was predicted for a batch that ran out of memory is the limit from then on

bool by_batch(const BatchProbe& a, const BatchProbe& b) {
  return a.batch < b.batch;
}

/// The next batch to try after the largest one so far: twice of it, or what still fits. Where one alone was tried, half
/// of it tells what of its memory is the samples'.
std::optional<std::uint64_t> next_batch(const std::vector<BatchProbe>& probes, std::uint64_t usable) {
  const auto& last = *std::ranges::max_element(probes, by_batch);
  const auto line = memory_line(probes);
  if (last.peak_bytes >= usable) return std::nullopt;
  const double room = static_cast<double>(usable - last.peak_bytes) / kCaution;
  const double more = line.sample_bytes > 0 ? room / line.sample_bytes : static_cast<double>(last.batch);
  if (more >= static_cast<double>(last.batch)) return 2 * last.batch;
  if (probes.size() == 1 && last.batch > 1) return last.batch / 2;
  const auto most = last.batch + static_cast<std::uint64_t>(more);
  const auto worth_it = kWorthIt * static_cast<double>(last.batch);
  if (static_cast<double>(most) < worth_it) return std::nullopt;
  const auto even = most - most % kEven;
  return static_cast<double>(even) < worth_it ? most : even;
}

/// Two doublings in a row that brought nothing.
bool is_flat(const std::vector<BatchProbe>& probes) {
  if (probes.size() < 3) return false;
  const auto& earlier = probes[probes.size() - 3];
  return std::all_of(probes.end() - 2, probes.end(), [&](const auto& probe) {
    return probe.samples_per_second < earlier.samples_per_second * (1 + kPlateau);
  });
}

const BatchProbe& smallest_on_plateau(const std::vector<BatchProbe>& sorted) {
  const auto best = std::ranges::max(sorted, {}, &BatchProbe::samples_per_second).samples_per_second;
  return *std::ranges::find_if(sorted,
                               [&](const auto& probe) { return probe.samples_per_second >= best * (1 - kPlateau); });
}

/// Those that have room even if less of the card is left now than when they were tried; the first in any case.
std::vector<BatchProbe> with_room(const std::vector<BatchProbe>& sorted, std::uint64_t usable) {
  std::vector<BatchProbe> found;
  std::ranges::copy_if(sorted, std::back_inserter(found), [&](const auto& probe) {
    return found.empty() || probe.peak_bytes <= usable || usable >= probe.usable_bytes.value_or(usable);
  });
  return found;
}

double step_s(const BatchProbe& probe) {
  return static_cast<double>(probe.batch) / probe.samples_per_second;
}

/// A larger batch takes at least as much longer as the last one did, and at most as much by the sample.
void predict_rate(const std::vector<BatchProbe>& sorted, BatchPrediction& prediction) {
  const auto& last = sorted.back();
  if (last.samples_per_second <= 0 || prediction.batch <= last.batch) return;
  double slope = 0;
  if (sorted.size() > 1 && sorted[sorted.size() - 2].samples_per_second > 0) {
    const auto& before = sorted[sorted.size() - 2];
    slope = std::max(0.0, step_s(last) - step_s(before)) / static_cast<double>(last.batch - before.batch);
  }
  const auto batch = static_cast<double>(prediction.batch);
  const double fastest = batch / (step_s(last) + slope * (batch - static_cast<double>(last.batch)));
  const auto best = std::ranges::max(sorted, {}, &BatchProbe::samples_per_second).samples_per_second;
  prediction.low = (1 - kUneven) * last.samples_per_second;
  prediction.high = (1 + kUneven) * std::max(best, fastest);
}

/// What was tried, and what may still be taken.
struct Search {
  std::vector<BatchProbe> good;      ///< by batch
  std::uint64_t usable = 0;          ///< as the last one told
  std::uint64_t limit = UINT64_MAX;  ///< since one ran out of memory
  std::size_t ran_out = 0;

  std::uint64_t left() const { return std::min(usable, limit); }

  void take(BatchProbe measured) {
    usable = measured.usable_bytes.value_or(usable);
    if (measured.ran_out) {
      ++ran_out;
      limit = static_cast<std::uint64_t>(kLess * *measured.predicted.bytes);
      return;
    }
    measured.usable_bytes = usable;
    good.push_back(measured);
    std::ranges::sort(good, by_batch);
  }
  std::optional<std::uint64_t> next() const {
    const bool is_over = ran_out > 1 || is_flat(good) || good.size() + ran_out >= kMostProbes;
    return is_over ? std::nullopt : next_batch(good, left());
  }
};

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

std::uint64_t usable_by_tensors(std::uint64_t usable, double tensors, double held, bool longest_is_known) {
  const double share = held > 0 ? std::min(1.0, tensors / held) : 1.0;
  return static_cast<std::uint64_t>(share * (longest_is_known ? 1 : 1 - kUnseen) * static_cast<double>(usable));
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

std::uint64_t fewest_parts(std::uint64_t batch, std::span<const BatchProbe> smaller, std::uint64_t usable) {
  const auto largest = largest_batch(memory_line(smaller), usable);
  std::uint64_t parts = 2;
  while (parts < batch && (batch + parts - 1) / parts > largest) parts *= 2;
  return parts;
}

BatchPrediction predict_batch(std::span<const BatchProbe> probes, std::uint64_t batch) {
  BatchPrediction prediction{.batch = batch};
  if (probes.empty()) return prediction;
  std::vector<BatchProbe> sorted(probes.begin(), probes.end());
  std::ranges::sort(sorted, by_batch);
  const auto evaluation =
      static_cast<double>(std::ranges::max(sorted, {}, &BatchProbe::evaluation_bytes).evaluation_bytes);
  prediction.is_bound = sorted.size() < 2;
  const auto counted = prediction.is_bound ? std::max(batch, sorted.back().batch) : batch;
  prediction.bytes = std::max(memory_line(sorted).at(counted), evaluation);
  predict_rate(sorted, prediction);
  return prediction;
}

base::Result<BatchChoice> find_batch(const ProbeBatch& probe, std::uint64_t start, std::uint64_t usable) {
  BatchChoice choice;
  Search search{.usable = usable};
  for (std::optional<std::uint64_t> batch = std::max<std::uint64_t>(start, 1); batch; batch = search.next()) {
    const auto asked = predict_batch(search.good, *batch);
    auto measured = probe(asked);
    if (measured && measured->ran_out && search.good.empty())
      measured = base::fail(base::Error::Kind::unavailable, "there is no room for the batch as it is");
    if (!measured && search.good.empty()) return std::unexpected(measured.error());
    if (!measured) {
      choice.stopped = measured.error().message;
      break;
    }
    measured->predicted = asked;
    choice.probes.push_back(*measured);
    search.take(*measured);
  }
  const auto sorted = with_room(search.good, search.usable);
  const auto& best = smallest_on_plateau(sorted);
  const bool is_full = search.ran_out > 0 || sorted.size() < search.good.size();
  choice.memory = memory_line(search.good);
  choice.batch = best.batch;
  choice.largest = std::max(largest_batch(choice.memory, search.left()), sorted.back().batch);
  choice.why = best.batch < sorted.back().batch ? "larger ones are not faster"
               : is_full                        ? "larger ones have no room"
                                                : "it is the largest that was tried, and the fastest";
  return choice;
}

}  // namespace fullwatt::tune
