#include "fullwatt/engine/data/order.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace fullwatt::engine {
namespace {

/// Below a limit, each as likely (Lemire, "Fast random integer generation in an interval", 2019). The standard
/// library's own distributions differ between implementations.
std::uint64_t below(std::uint64_t limit, std::mt19937_64& random) {
  __extension__ using Wide = unsigned __int128;
  for (;;) {
    const auto product = Wide{random()} * limit;
    const auto rest = static_cast<std::uint64_t>(product);
    if (rest >= limit || rest >= -limit % limit) return static_cast<std::uint64_t>(product >> 64U);
  }
}

}  // namespace

Sequence::Sequence(std::int64_t samples) : samples_(static_cast<std::size_t>(samples)), decided_(samples_.size()) {
  std::iota(samples_.begin(), samples_.end(), std::int64_t{0});
}

std::span<const std::int64_t> Sequence::part(std::size_t begin, std::size_t end) {
  shuffle_until(end);
  return std::span(samples_).subspan(begin, end - begin);
}

/// Each place in turn gets one of the samples that have none yet, wherever in memory that is: some are asked for at
/// once, so that they are waited for together.
void Sequence::shuffle_until(std::size_t end) {
  std::array<std::size_t, 32> places{};
  while (decided_ < end) {
    const auto some = std::span(places).first(std::min(places.size(), end - decided_));
    for (auto first = decided_; auto& place : some) {
      place = first + below(samples_.size() - first, random_);
      __builtin_prefetch(&samples_[place]);
      ++first;
    }
    for (const auto place : some) std::swap(samples_[decided_++], samples_[place]);
  }
}

Sequence Order::epoch(std::uint64_t number) const {
  Sequence sequence(samples_);
  if (!shuffled_) return sequence;
  std::seed_seq seeds{static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32U),
                      static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32U)};
  sequence.random_.seed(seeds);
  sequence.decided_ = 0;
  return sequence;
}

}  // namespace fullwatt::engine
