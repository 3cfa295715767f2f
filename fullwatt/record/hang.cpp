#include "fullwatt/record/hang.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::record {
namespace {

namespace fs = std::filesystem;

/// Real-time signals are hardly used by programs; SIGRTMIN+11 is the one the agent listens to.
constexpr int kSignalOffset = 11;
constexpr std::size_t kMostThreads = 64;

/// A signal whose default action nobody replaced would end the process.
bool catches_signal(base::Files& files, int pid, int signal) {
  const auto status = files.read(fmt::format("/proc/{}/status", pid)).value_or("");
  for (auto line : base::lines(status)) {
    if (!line.starts_with("SigCgt:")) continue;
    const auto mask = base::number<std::uint64_t>(base::trim(line.substr(7)), 16).value_or(0);
    return (mask >> static_cast<unsigned>(signal - 1) & 1U) != 0;
  }
  return false;
}

std::string describe_threads(base::Files& files, int pid) {
  std::string text;
  const auto folder = fmt::format("/proc/{}/task", pid);
  const auto threads = files.list(folder).value_or(std::vector<std::string>{});
  for (std::size_t i = 0; i < std::min(threads.size(), kMostThreads); ++i) {
    const auto at = folder + "/" + threads[i];
    text += fmt::format("  thread {} {}  waits in {}  system call {}\n", threads[i],
                        base::printable(files.read_line(at + "/comm").value_or("?"), 40),
                        base::printable(files.read_line(at + "/wchan").value_or("?"), 60),
                        base::printable(files.read_line(at + "/syscall").value_or("?"), 30));
  }
  if (threads.size() > kMostThreads) text += fmt::format("  and {} threads more\n", threads.size() - kMostThreads);
  return text;
}

std::string describe(base::Files& files, int pid) {
  const auto command = files.read(fmt::format("/proc/{}/cmdline", pid)).value_or("");
  std::string readable = command;
  std::ranges::replace(readable, '\0', ' ');
  return fmt::format("process {}: {}\n{}", pid, base::printable(readable, 300), describe_threads(files, pid));
}

}  // namespace

bool HangWatch::hangs(std::uint64_t now_ns, std::uint64_t steps, std::uint64_t last_step_ns,
                      std::uint64_t median_step_ns) {
  if (steps < kLeastSteps || median_step_ns == 0 || now_ns < last_step_ns || steps == told_at_step_) return false;
  const auto limit = std::max(kLeastNs, kTimes * median_step_ns);
  if (now_ns - last_step_ns < limit) return false;
  told_at_step_ = steps;
  return true;
}

int stack_signal() {
  return SIGRTMIN + kSignalOffset;
}

std::string write_hang_report(base::Files& files, const std::string& run_folder, const std::vector<int>& tree,
                              const std::string& headline) {
  std::string text = headline + "\n\n";
  for (const int pid : tree) {
    text += describe(files, pid);
    if (catches_signal(files, pid, stack_signal())) ::kill(pid, stack_signal());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (const int pid : tree) {
    const auto stacks = files.read(fmt::format("{}/stacks-{}.txt", run_folder, pid));
    if (stacks) text += fmt::format("\nPython stacks of process {}:\n{}\n", pid, *stacks);
  }
  const auto path = (fs::path(run_folder) / "hang.txt").string();
  std::ofstream file(path);
  file << text;
  file.close();
  return file ? path : std::string();
}

}  // namespace fullwatt::record
