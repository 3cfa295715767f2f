#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace fullwatt::engine {

/// The samples of one epoch. Each place is computed by itself: nothing is shuffled first, nothing is kept, and threads
/// may ask at once.
class Sequence {
 public:
  Sequence() = default;

  std::size_t size() const { return size_; }
  std::int64_t operator[](std::size_t place) const;
  /// From one place of the epoch to another.
  std::vector<std::int64_t> part(std::size_t begin, std::size_t end) const;

 private:
  friend class Order;
  static constexpr std::size_t kMostRounds = 24;

  std::uint64_t permuted(std::uint64_t place) const;

  std::size_t size_ = 0;
  unsigned high_bits_ = 0;
  unsigned low_bits_ = 0;
  std::size_t rounds_ = 0;  ///< none where it is not shuffled
  std::array<std::uint64_t, kMostRounds> keys_{};
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
