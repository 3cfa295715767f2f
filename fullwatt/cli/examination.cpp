#include "fullwatt/cli/examination.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <fmt/format.h>
#include <unistd.h>

#include "fullwatt/base/process.hpp"
#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/probe/examine.hpp"
#include "fullwatt/doctor/probe/probes.hpp"

namespace fullwatt::cli {
namespace {

using base::Error;

constexpr std::size_t kLogLimit = 64UL * 1024 * 1024;

/// The end of a stream, whose beginning may be dropped.
std::string read_tail(std::istream& in) {
  std::string text;
  std::array<char, 65536> buffer{};
  while (in.read(buffer.data(), buffer.size()) || in.gcount() > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > 2 * kLogLimit) text.erase(0, text.size() - kLogLimit);
  }
  return text.size() > kLogLimit ? text.substr(text.size() - kLogLimit) : text;
}

/// The last part of a log: the failure stands at its end. Standard input is read to its end, however slowly it comes.
base::Result<std::vector<std::string>> read_log(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file || std::filesystem::is_directory(path)) {
      return base::fail(Error::Kind::bad_input,
                        fmt::format("cannot read the log {}: {}", path, std::strerror(file ? EISDIR : errno)),
                        "Name a file with the output of the training, or - for standard input.");
    }
  }
  const auto text = read_tail(path == "-" ? std::cin : file);
  std::vector<std::string> lines;
  for (auto line : base::lines(text)) lines.emplace_back(line);
  return lines;
}

base::Result<doctor::Target> target_of(const ExaminationOptions& options) {
  doctor::Target target;
  if (!options.python.empty()) {
    const auto found = base::find_in_path(options.python, base::current_environment());
    if (found.empty()) {
      return base::fail(Error::Kind::bad_input, fmt::format("there is no interpreter {}", options.python),
                        "Name the python of the environment you train in.");
    }
    // Links are kept: the name by which an environment's python is called decides which environment it is.
    target.python = std::filesystem::absolute(found).lexically_normal().string();
  }
  target.pid = options.pid;
  target.wake = options.wake;
  target.torch = !options.no_torch;
  target.torch_limit = std::chrono::milliseconds(static_cast<long>(options.timeout_s * 1000));
  target.cuda_limit = std::min(target.cuda_limit, target.torch_limit);
  target.nvml_limit = std::min(target.nvml_limit, target.torch_limit);
  if (options.pid != 0 && ::access(fmt::format("/proc/{}", options.pid).c_str(), F_OK) != 0) {
    return base::fail(Error::Kind::bad_input, fmt::format("there is no process {}", options.pid),
                      "Find it with: pgrep -af python");
  }
  if (!options.log_file.empty()) {
    auto lines = read_log(options.log_file);
    if (!lines) return std::unexpected(lines.error());
    target.log = *std::move(lines);
  }
  return target;
}

base::Result<Examined> examine_saved(const ExaminationOptions& options) {
  auto raw = doctor::load_raw(options.from);
  if (!raw) return std::unexpected(raw.error());
  if (!options.log_file.empty()) {
    auto lines = read_log(options.log_file);
    if (!lines) return std::unexpected(lines.error());
    raw->target.log = *std::move(lines);
  }
  raw->target.wake = raw->target.wake || options.wake;
  auto machine = doctor::examine(doctor::replay(*raw), raw->target);
  return Examined{std::move(machine), *std::move(raw)};
}

}  // namespace

void ExaminationOptions::add_to(CLI::App& command) {
  command.add_option("--python", python, "The interpreter you train with (default: active environment, then PATH)");
  command.add_option("--pid", pid, "Look at this running training")->check(CLI::PositiveNumber);
  command.add_option("--log", log_file, "Look at the output of a failed training (- for standard input)");
  command.add_option("--from", from, "Examine a machine saved with --save instead of this one");
  command.add_flag("--wake", wake, "Wake a sleeping GPU and test it");
  command.add_flag("--no-torch", no_torch, "Do not import PyTorch");
  command.add_option("--timeout", timeout_s, "Seconds to wait for PyTorch, and at most for the driver's libraries")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
}

base::Result<Examined> examine(const ExaminationOptions& options) {
  if (!options.from.empty()) return examine_saved(options);
  const auto target = target_of(options);
  if (!target) return std::unexpected(target.error());
  const auto recording = std::make_shared<doctor::RecordingWorld>(doctor::this_machine(base::own_executable()));
  auto machine = doctor::examine(recording, *target);
  auto raw = recording->recorded(*target);
  raw.environment = doctor::relevant(raw.environment);
  return Examined{std::move(machine), std::move(raw)};
}

base::Result<Examined> look_at_machine(const std::string& python) {
  ExaminationOptions options;
  options.python = python;
  options.no_torch = python.empty();
  options.timeout_s = python.empty() ? 10 : 60;
  return examine(options);
}

void keep_machine(const base::Result<Examined>& examined, const std::string& run_folder) {
  if (examined) std::ofstream(run_folder + "/machine.yaml") << doctor::raw_to_yaml(examined->raw);
}

}  // namespace fullwatt::cli
