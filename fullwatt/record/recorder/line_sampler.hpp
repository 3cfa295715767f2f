#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "fullwatt/vendor/python/frames.hpp"

namespace fullwatt::record {

/// Looks again and again at which line a Python thread is, from a thread of its own that needs nothing of the
/// interpreter. What it saw is named after it has ended.
class LineSampler {
 public:
  using Stack = std::vector<vendor::python::Place>;
  struct Sample {
    std::uint64_t at_ns;
    std::uint32_t stack;  ///< in stacks()
  };

  LineSampler(const vendor::python::FrameReader& reader, std::chrono::nanoseconds period);
  ~LineSampler() { stop(); }
  LineSampler(const LineSampler&) = delete;
  LineSampler& operator=(const LineSampler&) = delete;

  /// Ends it; what it has seen can be read from then on.
  void stop();
  const std::vector<Sample>& samples() const { return samples_; }
  std::span<const Stack* const> stacks() const { return stacks_; }

 private:
  struct Hash {
    std::size_t operator()(const Stack& stack) const;
  };
  static constexpr std::size_t kMostFrames = 120;
  static constexpr std::size_t kMostSamples = 20'000;

  void run(std::chrono::nanoseconds period);
  void look();

  vendor::python::FrameReader reader_;
  std::vector<Sample> samples_;
  std::unordered_map<Stack, std::uint32_t, Hash> known_;
  std::vector<const Stack*> stacks_;
  std::atomic<bool> over_ = false;
  std::thread thread_;  ///< last: it uses all the others
};

}  // namespace fullwatt::record
