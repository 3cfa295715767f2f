#include "fullwatt/explain/one_thread.hpp"

namespace fullwatt::explain {
namespace {

// With care: torch 2.11 on one CPU of a shared machine gave 50 to 120 GFLOP/s for square products of 64 to 512 rows, 53
// for a convolution, 33 GB/s for sums from memory, and 3 to 8 us for an operation of a few numbers.
constexpr double kFlopsPerMs = 20e6;
constexpr double kBytesPerMs = 5e6;
constexpr double kBeginMs = 0.02;

}  // namespace

std::optional<OneThread> one_thread(const ProcessFacts& facts) {
  const auto& flops = facts.flops;
  if (!flops || !flops->reason.empty()) return std::nullopt;
  const auto bytes = flops->bytes.find("cpu");
  const auto moved = bytes != flops->bytes.end() ? bytes->second : 0;
  return OneThread{.working_ms = flops->total / kFlopsPerMs + moved / kBytesPerMs,
                   .beginning_ms = flops->operations * kBeginMs};
}

}  // namespace fullwatt::explain
