#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/probe/probes.hpp"

namespace fullwatt::doctor {
namespace {

using base::Absent;
using base::Files;
using base::Reading;

constexpr std::array kLibraryParts{"libcuda.so",     "libcudart", "libcudnn", "libnccl",
                                   "libnvJitLink",   "libcublas", "libtorch", "libnvidia-ml",
                                   "libonnxruntime", "libllama",  "libggml"};

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

/// The way to the GPU: NVIDIA's own nodes, Windows' one under WSL2, and those of Tegra.
bool leads_to_gpu(std::string_view node) {
  constexpr std::array kNodes{"/dev/nvidia", "/dev/dxg", "/dev/nvhost-", "/dev/nvmap"};
  return std::ranges::any_of(kNodes, [&](const char* start) { return node.starts_with(start); });
}

void read_gpu_nodes(Files& files, const std::string& folder, model::Process& process) {
  const auto descriptors = files.list(folder + "/fd");
  if (!descriptors) {
    process.descriptors = descriptors.error();
    return;
  }
  process.descriptors = static_cast<int>(descriptors->size());
  std::set<std::string> nodes;
  for (const auto& descriptor : *descriptors) {
    const auto target = files.read_link(folder + "/fd/" + descriptor);
    if (target && leads_to_gpu(*target)) nodes.insert(*target);
  }
  process.gpu_nodes.assign(nodes.begin(), nodes.end());
}

void read_children(Files& files, const std::string& folder, model::Process& process) {
  const auto text = files.read(folder + "/task/" + std::to_string(process.pid) + "/children").value_or("");
  for (auto child : base::split(base::trim(text), ' ')) {
    if (const auto pid = base::number<int>(child)) process.child_pids.push_back(*pid);
  }
  process.children = static_cast<int>(process.child_pids.size());
}

/// A virtual environment's python is a link to the base one: what was typed, or the environment, tells which it was.
std::string interpreter_of(Files& files, const std::string& executable, const model::Process& process) {
  if (!process.command.empty() && process.command.front().starts_with('/')) return process.command.front();
  for (const auto* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto prefix = process.environment.find(name);
    if (prefix != process.environment.end() && files.exists(prefix->second + "/bin/python"))
      return prefix->second + "/bin/python";
  }
  return executable;
}

/// The script of `python train.py …` as an absolute path; empty for `python -m …` and for other programs.
std::string script_of(Files& files, const std::string& folder, const model::Process& process) {
  const auto at = std::ranges::find_if(process.command, [](const auto& word) { return word.ends_with(".py"); });
  if (at == process.command.end()) return {};
  if (at->starts_with('/')) return *at;
  const auto working = files.read_link(folder + "/cwd");
  return working ? base::normal_path(*working + "/" + *at) : std::string{};
}

/// The text in a line such as `os.environ["CUDA_VISIBLE_DEVICES"] = "1"`; nothing where it is not written out.
std::optional<std::string> assigned_text(std::string_view line, std::string_view name) {
  line = base::trim(line);
  const auto at = line.find(name);
  if (line.starts_with('#') || at == std::string_view::npos) return std::nullopt;
  auto rest = line.substr(at + name.size());
  if (!rest.starts_with("\"]") && !rest.starts_with("']")) return std::nullopt;
  rest = base::trim(rest.substr(2));
  if (!rest.starts_with('=') || rest.starts_with("==")) return std::nullopt;
  rest = base::trim(rest.substr(1));
  if (rest.empty() || (rest.front() != '"' && rest.front() != '\'')) return std::nullopt;
  const auto end = rest.find(rest.front(), 1);
  return end == std::string_view::npos ? std::nullopt : std::optional(std::string(rest.substr(1, end - 1)));
}

Reading<std::string> visible_devices_in_code(Files& files, const std::string& script) {
  constexpr std::string_view kName = "CUDA_VISIBLE_DEVICES";
  if (script.empty()) return base::absent(Absent::not_there);
  const auto text = files.grep(script, kName);
  if (!text) return text.error();
  for (auto line : base::lines(*text)) {
    if (auto value = assigned_text(line, kName)) return *std::move(value);
  }
  return base::absent(Absent::not_there);
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
  const auto command = files.read(folder + "/cmdline").value_or("");
  for (auto part : base::split(command, '\0')) {
    if (!part.empty()) process.command.emplace_back(part);
  }
  process.environment = relevant(base::parse_environment(files.read(folder + "/environ").value_or("")));
  const auto limits = files.read(folder + "/limits").value_or("");
  process.limit_memlock = limit_value(limits, "Max locked memory");
  process.limit_address_space = limit_value(limits, "Max address space");
  const auto exe = files.read_link(folder + "/exe");
  if (exe && base::file_name(*exe).starts_with("python")) process.python = interpreter_of(files, *exe, process);
  read_children(files, folder, process);
  read_libraries(files, folder, process);
  read_gpu_nodes(files, folder, process);
  process.visible_devices_in_code = visible_devices_in_code(files, script_of(files, folder, process));
  return process;
}

}  // namespace fullwatt::doctor
