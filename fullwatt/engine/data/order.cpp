#include "fullwatt/engine/data/order.hpp"

#include <numeric>
#include <random>
#include <utility>

namespace fullwatt::engine {
namespace {

/// Below a limit, each as likely. The standard library's own distributions differ between implementations.
std::uint64_t below(std::uint64_t limit, std::mt19937_64& random) {
  const std::uint64_t unfair = -limit % limit;  // the first numbers of the range that would come once more than others
  for (;;) {
    const auto number = random();
    if (number >= unfair) return number % limit;
  }
}

}  // namespace

std::vector<std::int64_t> Order::epoch(std::uint64_t number) const {
  std::vector<std::int64_t> sequence(static_cast<std::size_t>(samples_));
  std::iota(sequence.begin(), sequence.end(), std::int64_t{0});
  if (!shuffled_) return sequence;
  std::seed_seq seeds{static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32U),
                      static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32U)};
  std::mt19937_64 random(seeds);
  for (std::size_t i = sequence.size(); i > 1; --i) std::swap(sequence[i - 1], sequence[below(i, random)]);
  return sequence;
}

}  // namespace fullwatt::engine
