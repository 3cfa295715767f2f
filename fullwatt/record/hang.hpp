#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/base/files.hpp"

namespace fullwatt::record {

/// Tells, from the progress of the steps alone, when a run hangs: no step for ten times its median, and for ten seconds
/// at least. Each standstill is told once.
class HangWatch {
 public:
  static constexpr std::uint64_t kTimes = 10;
  static constexpr std::uint64_t kLeastNs = 10'000'000'000;
  static constexpr std::uint64_t kLeastSteps = 5;

  bool hangs(std::uint64_t now_ns, std::uint64_t steps, std::uint64_t last_step_ns, std::uint64_t median_step_ns);

 private:
  std::uint64_t told_at_step_ = 0;
};

/// The signal at which the agent writes the stacks of its threads.
int stack_signal();

/// Writes what every process of the tree is doing: state, system call, threads, and the Python stacks of those that
/// have the agent (their files in the run folder). Ends nothing. Returns the report's path, empty when it could not be
/// written.
std::string write_hang_report(base::Files& files, const std::string& run_folder, const std::vector<int>& tree,
                              const std::string& headline);

}  // namespace fullwatt::record
