#include "fullwatt/engine/data/order.hpp"

#include <algorithm>
#include <bit>
#include <span>

namespace fullwatt::engine {
namespace {

constexpr unsigned kWord = 64;

/// A well mixed number of another one (Steele et al., "Fast splittable pseudorandom number generators", 2014).
std::uint64_t mixed(std::uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30U)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27U)) * 0x94d049bb133111eb;
  return number ^ (number >> 31U);
}

/// So many bits that look like chance, decided by one half of a place and a key.
std::uint64_t bits_of(std::uint64_t half, std::uint64_t key, unsigned bits) {
  auto product = (half ^ key) * 0x9e3779b97f4a7c15;
  product ^= product >> 32U;
  return (product * 0xd6e8feb86659fd93) >> (kWord - bits);
}

}  // namespace

/// What is permuted is a power of two: whatever leads beyond the end goes on until it is back within.
std::int64_t Sequence::operator[](std::size_t place) const {
  if (rounds_ == 0) return static_cast<std::int64_t>(place);
  auto sample = permuted(place);
  while (sample >= size_) sample = permuted(sample);
  return static_cast<std::int64_t>(sample);
}

std::vector<std::int64_t> Sequence::part(std::size_t begin, std::size_t end) const {
  std::vector<std::int64_t> samples(end - begin);
  for (auto& sample : samples) sample = (*this)[begin++];
  return samples;
}

/// A Feistel network: each half in turn is changed by the other one, which can be undone, so that no two places meet
/// (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
std::uint64_t Sequence::permuted(std::uint64_t place) const {
  auto high = place >> low_bits_;
  auto low = place & ((std::uint64_t{1} << low_bits_) - 1);
  for (std::size_t round = 0; round < rounds_; round += 2) {
    high ^= bits_of(low, keys_[round], high_bits_);
    low ^= bits_of(high, keys_[round + 1], low_bits_);
  }
  return (high << low_bits_) | low;
}

Sequence Order::epoch(std::uint64_t number) const {
  constexpr unsigned kFew = 12;  // bits; the fewer, the more rounds it takes until every order is as likely
  constexpr std::size_t kRounds = 8;
  Sequence sequence;
  sequence.size_ = static_cast<std::size_t>(samples_);
  if (!shuffled_ || samples_ < 2) return sequence;
  const auto bits = std::max(2U, static_cast<unsigned>(std::bit_width(sequence.size_ - 1)));
  sequence.high_bits_ = bits / 2;
  sequence.low_bits_ = bits - sequence.high_bits_;
  sequence.rounds_ = bits < kFew ? Sequence::kMostRounds : kRounds;
  auto key = mixed(seed_) + number;
  for (auto& of_round : std::span(sequence.keys_).first(sequence.rounds_)) of_round = key = mixed(key);
  return sequence;
}

}  // namespace fullwatt::engine
