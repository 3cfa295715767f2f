#include "fullwatt/record/training.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fullwatt::record {
namespace {

/// Those that mean the training, not us; SIGCHLD tells of its end.
constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

sigset_t watched() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kPassedOn) sigaddset(&signals, signal);
  sigaddset(&signals, SIGCHLD);
  return signals;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (auto& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

}  // namespace

base::Result<Training> Training::start(const std::vector<std::string>& argv, const base::Environment& environment) {
  const auto program = base::find_in_path(argv.front(), environment);
  if (program.empty()) {
    return base::fail(base::Error::Kind::not_found, "there is no program '" + argv.front() + "'",
                      "Give the command as you would type it: fullwatt run -- python train.py");
  }
  auto arguments = argv;
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  auto argument_pointers = pointers(arguments);
  auto variable_pointers = pointers(variables);
  int failure[2];
  if (::pipe2(failure, O_CLOEXEC) != 0)
    return base::fail(base::Error::Kind::unavailable, std::string("cannot make a pipe: ") + std::strerror(errno));

  const auto signals = watched();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  const int pid = ::fork();
  if (pid == 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::execve(program.c_str(), argument_pointers.data(), variable_pointers.data());
    const int why = errno;
    static_cast<void>(!::write(failure[1], &why, sizeof(why)));
    ::_exit(127);
  }
  ::close(failure[1]);
  int why = pid < 0 ? errno : 0;
  const bool failed = pid < 0 || ::read(failure[0], &why, sizeof(why)) == sizeof(why);
  ::close(failure[0]);
  if (!failed) return Training(pid);
  if (pid > 0) ::waitpid(pid, nullptr, 0);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return base::fail(base::Error::Kind::unavailable, "cannot start " + program + ": " + std::strerror(why));
}

std::optional<Exit> Training::wait(std::chrono::milliseconds time) {
  const auto signals = watched();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec limit{seconds.count(), std::chrono::nanoseconds(time - seconds).count()};
  siginfo_t info{};
  const int signal = ::sigtimedwait(&signals, &info, &limit);
  if (signal > 0 && signal != SIGCHLD) {
    interrupted_ = interrupted_ || signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
    // The terminal sends Ctrl-C to the whole group; twice would be once too often.
    const bool from_terminal = info.si_code == SI_KERNEL;
    if (!from_terminal) ::kill(pid_, signal);
  }
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  if (WIFSIGNALED(status)) return Exit{0, WTERMSIG(status)};
  return Exit{WEXITSTATUS(status), 0};
}

void Training::restore_signals() {
  const auto signals = watched();
  ::sigprocmask(SIG_UNBLOCK, &signals, nullptr);
}

}  // namespace fullwatt::record
