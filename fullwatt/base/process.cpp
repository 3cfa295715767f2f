#include "fullwatt/base/process.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::base {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kGrace{5};  ///< for a child that is told to end

/// The NAME=VALUE pointers that execve takes, kept alive together with their text.
struct ExecStrings {
  std::vector<std::string> text;
  std::vector<char*> pointers;

  void seal() {
    for (auto& line : text) pointers.push_back(line.data());
    pointers.push_back(nullptr);
  }
};

ExecStrings exec_environment(const Environment& environment) {
  ExecStrings block;
  for (const auto& [name, value] : environment) block.text.push_back(name + "=" + value);
  block.seal();
  return block;
}

ExecStrings exec_arguments(const std::vector<std::string>& argv) {
  ExecStrings block{argv, {}};
  block.seal();
  return block;
}

struct Pipe {
  int read_end = -1;
  int write_end = -1;

  bool open() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read_end = ends[0];
    write_end = ends[1];
    return true;
  }
  void close_read() { close_end(read_end); }
  void close_write() { close_end(write_end); }
  ~Pipe() {
    close_read();
    close_write();
  }

 private:
  static void close_end(int& fd) {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
};

/// Runs in the child between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(const char* path, char* const* argv, char* const* envp, int out, int err) {
  ::setpgid(0, 0);
  // Ctrl-C reaches the parent only; a child must not outlive it.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGINT, SIG_DFL);
  ::execve(path, argv, envp);
  ::_exit(127);
}

/// Reads what is there; false at the end of the stream.
bool drain(int fd, std::string& into, std::size_t limit) {
  std::array<char, 65536> buffer{};
  const auto got = ::read(fd, buffer.data(), buffer.size());
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  if (got == 0) return false;
  const auto room = limit - std::min(limit, into.size());
  into.append(buffer.data(), std::min(room, static_cast<std::size_t>(got)));
  return true;
}

/// Collects both streams until they end, the deadline passes, or nobody wants them any more; true when they ended.
bool collect(Pipe& out, Pipe& err, ChildResult& result, const ChildOptions& options, Clock::time_point deadline) {
  constexpr std::int64_t kPauseMs = 200;
  while (out.read_end >= 0 || err.read_end >= 0) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 || (options.is_over && options.is_over())) return false;
    if (options.is_over) left = std::min(left, kPauseMs);
    std::array<pollfd, 2> ends{pollfd{out.read_end, POLLIN, 0}, pollfd{err.read_end, POLLIN, 0}};
    if (::poll(ends.data(), ends.size(), static_cast<int>(left)) < 0) {
      if (errno != EINTR) return false;
      continue;
    }
    const auto limit = options.output_limit;
    if (ends[0].revents != 0 && !drain(out.read_end, result.out, limit)) out.close_read();
    if (ends[1].revents != 0 && !drain(err.read_end, result.err, limit)) err.close_read();
  }
  return true;
}

/// Waits for the child to end by itself until the deadline.
bool reap(pid_t pid, int& status, Clock::time_point deadline) {
  while (true) {
    const auto done = ::waitpid(pid, &status, WNOHANG);
    if (done == pid) return true;
    if (done < 0 && errno != EINTR) return true;
    if (Clock::now() >= deadline) return false;
    ::usleep(500);
  }
}

/// Kills the whole group. A child in uninterruptible sleep does not die: it is left behind rather than waited for.
bool kill_group(pid_t pid, int& status) {
  ::kill(-pid, SIGKILL);
  ::kill(pid, SIGKILL);
  return reap(pid, status, Clock::now() + std::chrono::seconds(1));
}

}  // namespace

Environment current_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    const auto at = line.find('=');
    if (at != std::string_view::npos) environment.emplace(line.substr(0, at), line.substr(at + 1));
  }
  return environment;
}

Environment parse_environment(std::string_view block) {
  Environment environment;
  for (auto line : split(block, '\0')) {
    const auto at = line.find('=');
    if (at != std::string_view::npos && at > 0) environment.emplace(line.substr(0, at), line.substr(at + 1));
  }
  return environment;
}

std::string find_in_path(const std::string& program, const Environment& environment) {
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0 ? program : std::string{};
  const auto path = environment.find("PATH");
  if (path == environment.end()) return {};
  for (auto folder : split(path->second, ':')) {
    const auto candidate = std::string(folder.empty() ? "." : folder) + "/" + program;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

std::string own_executable() {
  std::array<char, 4096> buffer{};
  const auto got = ::readlink("/proc/self/exe", buffer.data(), buffer.size());
  return got > 0 ? std::string(buffer.data(), static_cast<std::size_t>(got)) : std::string{};
}

Result<ChildResult> run_child(const ChildOptions& options) {
  const auto program = options.argv.empty() ? std::string{} : find_in_path(options.argv.front(), options.environment);
  if (program.empty()) {
    return fail(Error::Kind::not_found, "program not found: " + (options.argv.empty() ? "" : options.argv.front()));
  }
  Pipe out;
  Pipe err;
  if (!out.open() || !err.open()) return fail(Error::Kind::unavailable, std::string("pipe: ") + std::strerror(errno));
  const auto arguments = exec_arguments(options.argv);
  const auto environment = exec_environment(options.environment);
  const auto start = Clock::now();
  const auto deadline = start + options.limit;

  const pid_t pid = ::fork();
  if (pid < 0) return fail(Error::Kind::unavailable, std::string("fork: ") + std::strerror(errno));
  if (pid == 0) {
    become(program.c_str(), arguments.pointers.data(), environment.pointers.data(), out.write_end, err.write_end);
  }
  ::setpgid(pid, pid);
  out.close_write();
  err.close_write();

  ChildResult result;
  int status = 0;
  bool ended = collect(out, err, result, options, deadline) && reap(pid, status, deadline);
  if (!ended && options.is_over && options.is_over()) {
    ::kill(pid, SIGTERM);
    ended = reap(pid, status, Clock::now() + kGrace);
  }
  if (!ended) {
    result.timed_out = true;
    kill_group(pid, status);
  }
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace fullwatt::base
