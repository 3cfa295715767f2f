#pragma once

#include <cstdint>
#include <vector>

namespace fullwatt::engine {

/// The sequence of samples in every epoch: by number, or shuffled by a seed; the same on every machine.
class Order {
 public:
  Order(std::int64_t samples, bool shuffled, std::uint64_t seed)
      : samples_(samples), shuffled_(shuffled), seed_(seed) {}

  std::vector<std::int64_t> epoch(std::uint64_t number) const;

 private:
  std::int64_t samples_;
  bool shuffled_;
  std::uint64_t seed_;
};

}  // namespace fullwatt::engine
