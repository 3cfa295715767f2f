#include <algorithm>
#include <array>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/probe/probes.hpp"

namespace fullwatt::doctor {
namespace {

using base::Absent;
using base::Files;
using base::Reading;

constexpr std::array kPrefixes{"CUDA_", "NVIDIA_", "NCCL_",  "PYTORCH_", "TORCH",   "OMP_",  "MKL_", "KMP_",
                               "GOMP_", "CONDA",   "SLURM_", "CUBLAS",   "TRITON_", "CUDNN", "XLA_", "DATA_LOADER"};
constexpr std::array kNames{"LD_LIBRARY_PATH",
                            "LD_PRELOAD",
                            "PATH",
                            "PYTHONPATH",
                            "PYTHONHOME",
                            "PYTHONNOUSERSITE",
                            "VIRTUAL_ENV",
                            "RANK",
                            "LOCAL_RANK",
                            "WORLD_SIZE",
                            "LOCAL_WORLD_SIZE",
                            "MASTER_ADDR",
                            "MASTER_PORT",
                            "HOME",
                            "PWD",
                            "LIBTORCH",
                            "Torch_DIR",
                            "XDG_RUNTIME_DIR",
                            "LANG",
                            "LC_ALL"};

std::uint64_t meminfo(std::string_view text, std::string_view name) {
  for (auto line : base::lines(text)) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    auto value = base::trim(line.substr(name.size() + 1));
    if (value.ends_with(" kB")) value.remove_suffix(3);
    return base::number<std::uint64_t>(value).value_or(0) * 1024;
  }
  return 0;
}

/// The cgroup of the training asked about, or of this process.
std::string cgroup_of(Files& files, int pid) {
  const auto text = files.read("/proc/" + (pid == 0 ? std::string("self") : std::to_string(pid)) + "/cgroup");
  if (!text) return {};
  for (auto line : base::lines(*text)) {
    if (line.starts_with("0::")) return "/sys/fs/cgroup" + std::string(line.substr(3));
  }
  return {};
}

/// The folders from the process's own cgroup up to the root: a limit anywhere above counts.
std::vector<std::string> cgroup_folders(Files& files, int pid) {
  std::vector<std::string> folders;
  auto folder = cgroup_of(files, pid);
  while (folder.size() > std::string_view("/sys/fs/cgroup").size()) {
    folders.push_back(base::normal_path(folder));
    folder = std::string(base::folder_of(base::normal_path(folder)));
  }
  folders.emplace_back("/sys/fs/cgroup");
  return folders;
}

/// cgroup v2: "200000 100000" is two processors, "max 100000" is no limit.
std::optional<double> v2_quota(Files& files, const std::string& folder) {
  const auto text = files.read_line(folder + "/cpu.max");
  if (!text) return std::nullopt;
  const auto parts = base::split(*text, ' ');
  const auto quota = base::number<std::int64_t>(parts.front());
  const auto period = parts.size() > 1 ? base::number<std::int64_t>(parts[1]) : std::nullopt;
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::optional<double> v1_quota(Files& files) {
  const auto quota = files.read_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const auto period = files.read_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (!quota || !period) return std::nullopt;
  const auto used = base::number<std::int64_t>(*quota);
  const auto of = base::number<std::int64_t>(*period);
  if (!used || !of || *used <= 0 || *of <= 0) return std::nullopt;
  return static_cast<double>(*used) / static_cast<double>(*of);
}

Reading<std::uint64_t> stat_value(std::string_view text, std::string_view name) {
  for (auto line : base::lines(text)) {
    const auto blank = line.find(' ');
    if (blank == std::string_view::npos || line.substr(0, blank) != name) continue;
    if (const auto value = base::number<std::uint64_t>(line.substr(blank + 1))) return *value;
  }
  return base::absent(Absent::not_there);
}

void read_cgroup(Files& files, int pid, model::Host& host) {
  host.cpu_quota = base::absent(Absent::unsupported, "no limit");
  host.memory_limit_bytes = base::absent(Absent::unsupported, "no limit");
  const auto tighten = [](auto& limit, auto value) {
    if (!limit || value < *limit) limit = value;
  };
  for (const auto& folder : cgroup_folders(files, pid)) {
    if (const auto quota = v2_quota(files, folder)) tighten(host.cpu_quota, *quota);
    const auto memory = files.read_line(folder + "/memory.max");
    if (const auto bytes = memory ? base::number<std::uint64_t>(*memory) : std::nullopt)
      tighten(host.memory_limit_bytes, *bytes);
    const auto stat = files.read(folder + "/cpu.stat");
    if (stat && !host.cpu_throttled) {
      host.cpu_throttled = stat_value(*stat, "nr_throttled");
      host.cpu_periods = stat_value(*stat, "nr_periods");
    }
  }
  if (const auto quota = v1_quota(files)) tighten(host.cpu_quota, *quota);
}

/// "some avg10=0.00 avg60=1.25 …" → 1.25.
Reading<double> pressure(Files& files, const std::string& path) {
  const auto text = files.read(path);
  if (!text) return text.error();
  const auto at = text->find("avg60=");
  double value = 0;
  if (at == std::string::npos) return base::absent(Absent::failed);
  const auto* start = text->data() + at + 6;
  if (std::from_chars(start, text->data() + text->size(), value).ec != std::errc{}) return base::absent(Absent::failed);
  return value;
}

void read_memory(Files& files, model::Host& host) {
  const auto text = files.read("/proc/meminfo").value_or("");
  host.memory_total_bytes = meminfo(text, "MemTotal");
  host.memory_available_bytes = meminfo(text, "MemAvailable");
  host.commit_limit_bytes = meminfo(text, "CommitLimit");
  const auto overcommit = files.read_line("/proc/sys/vm/overcommit_memory");
  if (overcommit) host.overcommit = base::number<int>(*overcommit).value_or(0);
}

void count_numa(Files& files, model::Host& host) {
  const auto names = files.list("/sys/devices/system/node");
  if (!names) return;
  const auto is_node = [](const std::string& name) {
    return name.starts_with("node") && base::number<int>(name.substr(4));
  };
  host.numa_nodes = std::max(1, static_cast<int>(std::ranges::count_if(*names, is_node)));
}

void read_shared_memory(Files& files, model::Host& host) {
  const auto names = files.list("/dev/shm", "nccl-");
  for (const auto& name : names.value_or(std::vector<std::string>{})) {
    if (name.starts_with("nccl-")) host.stale_nccl_files.push_back("/dev/shm/" + name);
  }
}

/// A lock for several platforms holds several torch packages: every source counts.
void add_source(std::string_view line, model::Host& host) {
  if (!host.lock_torch_source) {
    host.lock_torch_source = std::string(line);
  } else if (!base::contains(*host.lock_torch_source, line)) {
    *host.lock_torch_source += "; " + std::string(line);
  }
}

/// uv.lock: the [[package]] whose name is torch says where it is taken from.
void read_lock_file(Files& files, const base::Environment& environment, model::Host& host) {
  const auto folder = environment.find("PWD");
  host.lock_torch_source = base::absent(Absent::not_there);
  if (folder == environment.end()) return;
  for (const auto* name : {"uv.lock", "poetry.lock"}) {
    const auto path = folder->second + "/" + name;
    const auto text = files.read(path, 16UL * 1024 * 1024);
    if (!text) continue;
    host.lock_files.push_back(path);
    bool in_torch = false;
    for (auto line : base::lines(*text)) {
      if (line.starts_with("[[package]]")) in_torch = false;
      if (line == "name = \"torch\"") in_torch = true;
      if (in_torch && (line.starts_with("source =") || line.starts_with("url ="))) add_source(line, host);
    }
  }
}

}  // namespace

base::Environment relevant(const base::Environment& environment) {
  base::Environment kept;
  for (const auto& [name, value] : environment) {
    const auto is_prefix = [&](const char* prefix) { return name.starts_with(prefix); };
    const auto is_name = [&](const char* known) { return name == known; };
    const bool secret = base::contains(name, "TOKEN") || base::contains(name, "SECRET") ||
                        base::contains(name, "PASSWORD") || base::contains(name, "KEY");
    if (!secret && (std::ranges::any_of(kPrefixes, is_prefix) || std::ranges::any_of(kNames, is_name)))
      kept.emplace(name, value);
  }
  return kept;
}

model::Host probe_host(base::Files& files, model::System system, const base::Environment& environment, int pid) {
  model::Host host;
  host.system = std::move(system);
  host.environment = relevant(environment);
  read_cgroup(files, pid, host);
  read_memory(files, host);
  host.io_pressure = pressure(files, "/proc/pressure/io");
  host.memory_pressure = pressure(files, "/proc/pressure/memory");
  count_numa(files, host);
  read_shared_memory(files, host);
  const auto units = files.list("/sys/class/iommu");
  host.iommu = units && !units->empty();
  read_lock_file(files, environment, host);
  return host;
}

}  // namespace fullwatt::doctor
