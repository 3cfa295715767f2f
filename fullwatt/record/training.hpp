#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/base/error.hpp"
#include "fullwatt/base/process.hpp"

namespace fullwatt::record {

/// How the user's command ended.
struct Exit {
  int code = 0;
  int signal = 0;  ///< the signal that ended it, 0 when none

  /// What a shell would report.
  int status() const { return signal != 0 ? 128 + signal : code; }
};

/// The user's command as a child: it has our terminal, our process group and all three of our streams, and it outlives
/// us if we die. Signals that reach only us are passed on. One at a time in a process: it takes the signals over.
class Training {
 public:
  static base::Result<Training> start(const std::vector<std::string>& argv, const base::Environment& environment);

  int pid() const { return pid_; }
  /// Waits for the child's end or a signal, at most `time`.
  std::optional<Exit> wait(std::chrono::milliseconds time);
  /// Whether Ctrl-C or a request to end arrived.
  bool interrupted() const { return interrupted_; }
  /// Signals end this program again, as they do others.
  static void restore_signals();

 private:
  explicit Training(int pid) : pid_(pid) {}

  int pid_;
  bool interrupted_ = false;
};

}  // namespace fullwatt::record
