#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "fullwatt/vendor/python/known_codes.hpp"

namespace fullwatt::record {

/// Looks again and again at which line a Python thread is, from a thread of its own. It needs the interpreter's lock
/// only where it meets code that it does not know yet. What it saw is named after it has ended.
class LineSampler {
 public:
  using Stack = std::vector<vendor::python::Place>;
  struct Sample {
    std::uint64_t at_ns;
    std::uint32_t stack;  ///< in stacks()
  };

  /// Samples the calling thread. `codes` outlives it, and is its own until it has ended.
  LineSampler(const vendor::python::FrameReader& reader, vendor::python::KnownCodes& codes,
              std::chrono::nanoseconds period);
  ~LineSampler() { stop(); }
  LineSampler(const LineSampler&) = delete;
  LineSampler& operator=(const LineSampler&) = delete;

  /// Ends it; what it has seen can be read from then on. Not to be called with the interpreter's lock held.
  void stop();
  const std::vector<Sample>& samples() const { return samples_; }
  std::span<const Stack* const> stacks() const { return stacks_; }
  /// Addresses of code that many samples have and nobody knows.
  std::vector<std::uint64_t> unknown() const;

 private:
  struct Hash {
    std::size_t operator()(const Stack& stack) const;
  };
  static constexpr std::size_t kMostFrames = 120;
  static constexpr std::size_t kMostSamples = 20'000;

  void run(std::chrono::nanoseconds period);
  void look();
  void learn(std::span<const vendor::python::Place> places);

  vendor::python::FrameReader reader_;
  vendor::python::KnownCodes& codes_;
  unsigned long sampled_;         ///< the thread, by Python's number
  std::uint64_t learned_ns_ = 0;  ///< when the lock was asked for last
  std::vector<Sample> samples_;
  std::unordered_map<Stack, std::uint32_t, Hash> known_;
  std::vector<const Stack*> stacks_;
  std::atomic<bool> over_ = false;
  std::thread thread_;  ///< last: it uses all the others
};

}  // namespace fullwatt::record
