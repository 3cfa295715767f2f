#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "fullwatt/base/error.hpp"
#include "fullwatt/tune/lookout.hpp"

namespace fullwatt::tune {

/// Runs a command to its end or to its time limit and sees to it that nothing of it is left: every process that it
/// started, in whatever session, ends with it. The same when this process is told to end (SIGTERM, SIGINT, or its
/// parent's death), or when the lookout, where there is one, sees what must not be. Returns what a shell would report;
/// 124 after the limit, 125 for what must not be.
base::Result<int> supervise(const std::vector<std::string>& command, std::chrono::milliseconds limit,
                            Lookout* lookout = nullptr);

constexpr int kTimedOut = 124;
constexpr int kForbidden = 125;

}  // namespace fullwatt::tune
