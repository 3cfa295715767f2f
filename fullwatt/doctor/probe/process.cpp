#include <algorithm>
#include <array>
#include <set>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/probe/probes.hpp"

namespace fullwatt::doctor {
namespace {

using base::Absent;
using base::Files;
using base::Reading;

constexpr std::array kLibraryParts{"libcuda.so", "libcudart", "libcudnn", "libnccl", "libnvJitLink", "libcublas",
                                   "libtorch", "libnvidia-ml", "libonnxruntime", "libllama", "libggml"};

Reading<std::string> status_value(std::string_view text, std::string_view name) {
  for (auto line : base::lines(text)) {
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ':') {
      return std::string(base::trim(line.substr(name.size() + 1)));
    }
  }
  return base::absent(Absent::not_there);
}

/// "Max locked memory   65536   65536   bytes" → the soft limit; "unlimited" is absent as unsupported.
Reading<std::uint64_t> limit_value(std::string_view text, std::string_view name) {
  for (auto line : base::lines(text)) {
    if (!line.starts_with(name)) continue;
    const auto rest = base::trim(line.substr(name.size()));
    const auto soft = rest.substr(0, rest.find(' '));
    if (soft == "unlimited") return base::absent(Absent::unsupported, "unlimited");
    if (const auto value = base::number<std::uint64_t>(soft)) return *value;
  }
  return base::absent(Absent::not_there);
}

void read_libraries(Files& files, const std::string& folder, model::Process& process) {
  std::set<std::string> seen;
  for (const auto* part : kLibraryParts) {
    const auto text = files.grep(folder + "/maps", part);
    if (!text) continue;
    for (auto line : base::lines(*text)) {
      const auto slash = line.find('/');
      if (slash == std::string_view::npos) continue;
      auto path = line.substr(slash);
      if (path.ends_with(" (deleted)")) path.remove_suffix(10);
      if (base::contains(base::file_name(path), ".so")) seen.emplace(path);
    }
  }
  process.libraries.assign(seen.begin(), seen.end());
  process.imports_torch = std::ranges::any_of(seen, [](const auto& path) { return base::contains(path, "libtorch"); });
}

void read_gpu_nodes(Files& files, const std::string& folder, model::Process& process) {
  const auto descriptors = files.list(folder + "/fd");
  if (!descriptors) return;
  std::set<std::string> nodes;
  for (const auto& descriptor : *descriptors) {
    const auto target = files.read_link(folder + "/fd/" + descriptor);
    if (target && target->starts_with("/dev/nvidia")) nodes.insert(*target);
  }
  process.gpu_nodes.assign(nodes.begin(), nodes.end());
}

}  // namespace

base::Reading<model::Process> probe_process(base::Files& files, int pid) {
  const auto folder = "/proc/" + std::to_string(pid);
  const auto status = files.read(folder + "/status");
  if (!status) return status.error();
  model::Process process;
  process.pid = pid;
  process.name = status_value(*status, "Name").value_or("");
  process.state = status_value(*status, "State").value_or("");
  process.cpus = status_value(*status, "Cpus_allowed_list");
  process.memory_nodes = status_value(*status, "Mems_allowed_list");
  for (auto part : base::split(files.read(folder + "/cmdline").value_or(""), '\0')) {
    if (!part.empty()) process.command.emplace_back(part);
  }
  process.environment = relevant(base::parse_environment(files.read(folder + "/environ").value_or("")));
  const auto limits = files.read(folder + "/limits").value_or("");
  process.limit_memlock = limit_value(limits, "Max locked memory");
  process.limit_address_space = limit_value(limits, "Max address space");
  const auto exe = files.read_link(folder + "/exe");
  if (exe && base::file_name(*exe).starts_with("python")) {
    // A virtual environment's python is a link to the base one: what was typed tells which it was.
    const bool typed = !process.command.empty() && process.command.front().starts_with('/');
    process.python = typed ? process.command.front() : *exe;
  }
  const auto children = files.read(folder + "/task/" + std::to_string(pid) + "/children").value_or("");
  for (auto child : base::split(children, ' ')) process.children += base::trim(child).empty() ? 0 : 1;
  read_libraries(files, folder, process);
  read_gpu_nodes(files, folder, process);
  return process;
}

}  // namespace fullwatt::doctor
