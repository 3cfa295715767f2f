#include "fullwatt/tune/supervise.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <optional>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fullwatt/base/process.hpp"

namespace fullwatt::tune {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
constexpr milliseconds kPatience{3000};  ///< for killed processes to be gone; one in uninterruptible sleep stays

/// Processes whose parent we are, orphans of our descendants among them.
std::vector<int> children() {
  std::vector<int> found;
  std::ifstream file(fmt::format("/proc/self/task/{}/children", ::gettid()));
  for (int pid = 0; file >> pid;) found.push_back(pid);
  return found;
}

/// A killed child's own children become ours: again and again until there are none.
void end_all() {
  const auto deadline = Clock::now() + kPatience;
  while (Clock::now() < deadline) {
    for (const int pid : children()) ::kill(pid, SIGKILL);
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD) return;
    ::usleep(2000);
  }
}

sigset_t told_to_end() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&signals, signal);
  return signals;
}

[[noreturn]] void become(const std::string& program, std::vector<std::string> command, const sigset_t& signals) {
  std::vector<char*> arguments;
  for (auto& text : command) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  ::setsid();  // Ctrl-C is for us
  ::sigprocmask(SIG_SETMASK, &signals, nullptr);
  ::execv(program.c_str(), arguments.data());
  ::_exit(127);
}

int status_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// Waits for the command; nothing when the time is up or we are told to end.
std::optional<int> wait_for(int pid, Clock::time_point deadline, const sigset_t& signals, int& told) {
  while (Clock::now() < deadline) {
    int status = 0;
    int gone = 0;
    while ((gone = ::waitpid(-1, &status, WNOHANG)) > 0) {
      if (gone == pid) return status_of(status);
    }
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
    const timespec time{left / 1'000'000'000, left % 1'000'000'000};
    const int signal = left > 0 ? ::sigtimedwait(&signals, nullptr, &time) : -1;
    if (signal > 0 && signal != SIGCHLD) {
      told = signal;
      return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace

base::Result<int> supervise(const std::vector<std::string>& command, milliseconds limit) {
  const auto program = base::find_in_path(command.front(), base::current_environment());
  if (program.empty()) {
    return base::fail(base::Error::Kind::not_found, "there is no program '" + command.front() + "'",
                      "Give the command as you would type it: fullwatt tune -- python train.py");
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  const auto signals = told_to_end();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  const int pid = ::fork();
  if (pid == 0) become(program, command, before);
  if (pid < 0) return base::fail(base::Error::Kind::unavailable, std::string("fork: ") + std::strerror(errno));
  int told = 0;
  const auto status = wait_for(pid, Clock::now() + limit, signals, told);
  end_all();
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return status.value_or(told != 0 ? 128 + told : kTimedOut);
}

}  // namespace fullwatt::tune
