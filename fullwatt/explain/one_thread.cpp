#include "fullwatt/explain/one_thread.hpp"

namespace fullwatt::explain {
namespace {

// Measured with torch 2.11 on one CPU of a shared machine, and taken with care: a product of 512 x 512 matrices runs at
// 94 GFLOP/s, sums of a few MB at 5 to 10 GB/s, and an operation that does next to nothing takes 2 to 10 us.
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
