#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace fullwatt::engine {

/// The samples of one epoch. It is shuffled only as far as it is asked for, so that no batch waits for all of it.
class Sequence {
 public:
  std::size_t size() const { return samples_.size(); }
  /// From one place of the epoch to another.
  std::span<const std::int64_t> part(std::size_t begin, std::size_t end);

 private:
  friend class Order;
  explicit Sequence(std::int64_t samples);

  void shuffle_until(std::size_t end);

  std::vector<std::int64_t> samples_;
  std::size_t decided_;  ///< places that hold their sample
  std::mt19937_64 random_;
};

/// The sequence of samples in every epoch: by number, or shuffled by a seed; the same on every machine.
class Order {
 public:
  Order(std::int64_t samples, bool shuffled, std::uint64_t seed)
      : samples_(samples), shuffled_(shuffled), seed_(seed) {}

  Sequence epoch(std::uint64_t number) const;

 private:
  std::int64_t samples_;
  bool shuffled_;
  std::uint64_t seed_;
};

}  // namespace fullwatt::engine
