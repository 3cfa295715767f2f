#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fullwatt/base/error.hpp"

/// The batch size of a training for a card: memory is predicted from small batches, so that none is tried that does not
/// fit, and of those that fit the smallest is taken that is as fast as any.
namespace fullwatt::tune {

/// What is expected of a batch before it is tried, from those that were. Of the first nothing is known.
struct BatchPrediction {
  std::uint64_t batch = 0;
  std::optional<double> bytes;  ///< of device memory
  bool is_bound = false;        ///< one batch was tried only: it is no more than `bytes`
  std::optional<double> low;    ///< samples per second
  std::optional<double> high;

  /// What is a prediction, and not only a bound.
  std::optional<double> told_bytes() const { return is_bound ? std::nullopt : bytes; }
};

/// What a training took at one batch size.
struct BatchProbe {
  std::uint64_t batch = 0;
  std::uint64_t peak_bytes = 0;  ///< of device memory, with the longest batch that may come
  double samples_per_second = 0;
  std::uint64_t evaluation_bytes = 0;         ///< at most, whatever the batch; 0 where nothing is evaluated
  std::optional<std::uint64_t> usable_bytes;  ///< of the card, as it was then; others come and go
  bool ran_out = false;                       ///< of memory: nothing else is known
  BatchPrediction predicted;                  ///< set by `find_batch`
};

/// Device memory by batch size: what a training takes anyway, and what each sample adds.
struct MemoryLine {
  double fixed_bytes = 0;
  double sample_bytes = 0;

  double at(std::uint64_t batch) const { return fixed_bytes + sample_bytes * static_cast<double>(batch); }
};

/// Through the two largest batches: small ones hide what libraries only take for larger ones. Through one alone, all of
/// its memory is the samples', which is never too little.
MemoryLine memory_line(std::span<const BatchProbe> probes);

/// What a training may take of a card: not what others use, nor what CUDA itself and the gaps between allocations need.
std::uint64_t usable_bytes(std::uint64_t card_bytes, std::uint64_t used_by_others = 0);

/// What tensors may take of it: the gaps between them grow with them (`held` is both, at some batch), and where it is
/// not known how long batches get, some is left for longer ones than were seen.
std::uint64_t usable_by_tensors(std::uint64_t usable, double tensors, double held, bool longest_is_known);

/// The largest batch that a line lets into so many bytes; 0 when not even one sample fits.
std::uint64_t largest_batch(const MemoryLine& line, std::uint64_t bytes);

/// From two numbers, before anything has run: a batch that should fit for an ordinary network with Adam in float32, and
/// no more than that. `model_bytes` is what its parameters take.
std::uint64_t estimated_batch(std::uint64_t model_bytes, std::uint64_t card_bytes);

/// A batch in parts whose gradients are added up before the step.
struct Accumulation {
  std::uint64_t batch = 0;  ///< of one part; 0 when not even one sample fits
  std::uint64_t steps = 0;  ///< parts of a step
};
/// The fewest equal parts, each no larger than `largest`, that make the same step: one of `effective` samples.
Accumulation accumulate(std::uint64_t effective, std::uint64_t largest);

/// Of a batch that has no room as a whole: the fewest parts, 2, 4, 8 and so on, that are expected to have it, from
/// smaller parts that were tried.
std::uint64_t fewest_parts(std::uint64_t batch, std::span<const BatchProbe> smaller, std::uint64_t usable);

/// From the batches that were tried.
BatchPrediction predict_batch(std::span<const BatchProbe> probes, std::uint64_t batch);

struct BatchChoice {
  std::uint64_t batch = 0;
  std::uint64_t largest = 0;  ///< that fits, as predicted
  MemoryLine memory;
  std::vector<BatchProbe> probes;  ///< in the order of their making, also those that ran out of memory
  std::string why;
  std::string stopped;  ///< why no more were tried, where a probe said so
};

/// Trains for some steps with a batch and tells what that took. It is never asked for a batch that is predicted not to
/// fit.
using ProbeBatch = std::function<base::Result<BatchProbe>(const BatchPrediction& asked)>;

/// `start` must be known to fit. Fails where even that does. A batch that runs out of memory all the same, because
/// others took some, lowers the limit; a second one ends the search.
base::Result<BatchChoice> find_batch(const ProbeBatch& probe, std::uint64_t start, std::uint64_t usable);

}  // namespace fullwatt::tune
