#include "fullwatt/tune/supervise.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
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

/// A child that is watched shares our descriptors until it executes its program: so we get the lookout's.
int start(const std::string& program, const std::vector<std::string>& command, const sigset_t& signals,
          Lookout* lookout) {
  std::array<int, 2> told{};
  if (lookout == nullptr || ::pipe2(told.data(), O_CLOEXEC) != 0) {
    const int pid = ::fork();
    if (pid == 0) become(program, command, signals);
    return pid;
  }
  const auto pid = static_cast<int>(::syscall(SYS_clone, CLONE_FILES | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (pid == 0) {
    const int descriptor = Lookout::watch_me();
    if (::write(told[1], &descriptor, sizeof(descriptor)) < 0) ::_exit(127);
    become(program, command, signals);
  }
  int descriptor = -1;
  if (pid > 0 && ::read(told[0], &descriptor, sizeof(descriptor)) == sizeof(descriptor)) lookout->listen(descriptor);
  for (const int end : told) ::close(end);
  return pid;
}

int status_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// Waits for the command, and answers the lookout's notices meanwhile.
class Watch {
 public:
  Watch(int pid, const sigset_t& signals, Lookout* lookout)
      : pid_(pid), lookout_(lookout), signals_(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)) {}
  ~Watch() { ::close(signals_); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  int until(Clock::time_point deadline) {
    while (Clock::now() < deadline) {
      if (const auto status = ended()) return *status;
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
      std::array<pollfd, 2> seen{
          {{signals_, POLLIN, 0}, {lookout_ != nullptr ? lookout_->descriptor() : -1, POLLIN, 0}}};
      if (::poll(seen.data(), seen.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX))) <= 0) continue;
      if (const int signal = told(); signal != 0) return 128 + signal;
      if ((seen[1].revents & POLLIN) != 0 && !lookout_->answer()) return kForbidden;
      if (seen[1].revents == POLLHUP) lookout_->stop();  // nobody is left that is watched
    }
    return kTimedOut;
  }

 private:
  std::optional<int> ended() const {
    int status = 0;
    int gone = 0;
    while ((gone = ::waitpid(-1, &status, WNOHANG)) > 0) {
      if (gone == pid_) return status_of(status);
    }
    return std::nullopt;
  }

  /// The signal that tells us to end; 0 for none.
  int told() const {
    signalfd_siginfo info{};
    while (::read(signals_, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGCHLD) return static_cast<int>(info.ssi_signo);
    }
    return 0;
  }

  int pid_;
  Lookout* lookout_;
  int signals_;
};

}  // namespace

base::Result<int> supervise(const std::vector<std::string>& command, milliseconds limit, Lookout* lookout) {
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
  const int pid = start(program, command, before, lookout);
  if (pid < 0) return base::fail(base::Error::Kind::unavailable, std::string("fork: ") + std::strerror(errno));
  const int status = Watch(pid, signals, lookout).until(Clock::now() + limit);
  end_all();
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return status;
}

}  // namespace fullwatt::tune
