#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fullwatt/base/error.hpp"

namespace fullwatt::base {

using Environment = std::map<std::string, std::string>;

/// This process's own environment.
Environment current_environment();
/// A block of NUL-terminated NAME=VALUE entries, as /proc/<pid>/environ holds it.
Environment parse_environment(std::string_view block);

struct ChildOptions {
  std::vector<std::string> argv;  ///< argv[0] is looked up in the environment's PATH when it holds no slash
  Environment environment;
  std::chrono::milliseconds limit{5000};
  std::size_t output_limit = 4UL * 1024 * 1024;  ///< of each stream; what is beyond is read and dropped
  std::function<bool()> is_over;  ///< asked again and again, where it is given: then the child is told to end, too
};

struct ChildResult {
  int exit_code = 0;  ///< valid when it ended by itself
  int signal = 0;     ///< the signal that ended it, 0 when none
  bool timed_out = false;
  std::string out;
  std::string err;
  double seconds = 0;

  bool ok() const { return exit_code == 0 && signal == 0 && !timed_out; }
};

/// Runs a program to its end or to its time limit, in its own process group, with no standard input. A child that
/// outlives the limit is killed with all it started; one that is told to end before has some seconds for it. The
/// caller's own signals and terminal are left alone.
Result<ChildResult> run_child(const ChildOptions& options);

/// Where execvp would find `program`; empty when nowhere.
std::string find_in_path(const std::string& program, const Environment& environment);

/// The path of the running program.
std::string own_executable();

}  // namespace fullwatt::base
