#include "fullwatt/doctor/probe/system.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <set>

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "fullwatt/base/files.hpp"
#include "fullwatt/base/process.hpp"
#include "fullwatt/base/text.hpp"

namespace fullwatt::doctor {
namespace {

using base::Absent;
using base::Reading;

constexpr std::size_t kMaxKernelLines = 4000;
constexpr std::chrono::milliseconds kJournalLimit{1500};

std::string allowed_cpus() {
  std::vector<int> cpus;
  constexpr int kMaxCpus = 4096;
  auto* set = CPU_ALLOC(kMaxCpus);
  const auto size = CPU_ALLOC_SIZE(kMaxCpus);
  if (::sched_getaffinity(0, size, set) == 0) {
    for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), size, set)) cpus.push_back(cpu);
    }
  }
  CPU_FREE(set);
  return base::number_ranges(cpus);
}

Reading<std::uint64_t> limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return base::absent_from_errno(errno);
  if (limit.rlim_cur == RLIM_INFINITY) return base::absent(Absent::unsupported, "unlimited");
  return static_cast<std::uint64_t>(limit.rlim_cur);
}

void read_shm(model::System& system) {
  struct statvfs space{};
  if (::statvfs("/dev/shm", &space) != 0) {
    system.shm_total_bytes = base::absent_from_errno(errno);
    system.shm_free_bytes = system.shm_total_bytes.error();
    return;
  }
  system.shm_total_bytes = static_cast<std::uint64_t>(space.f_blocks) * space.f_frsize;
  system.shm_free_bytes = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
}

/// The lines of one record. NVIDIA's module writes several at once, and the kernel escapes the ends between them.
std::vector<std::string> record_lines(std::string_view text) {
  constexpr std::string_view kLineEnd = "\\x0a";
  std::vector<std::string> lines;
  for (auto end = text.find(kLineEnd); end != std::string_view::npos; end = text.find(kLineEnd)) {
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end + kLineEnd.size());
  }
  lines.emplace_back(text);
  return lines;
}

/// A record of /dev/kmsg is "priority,sequence,time,flags;text"; continuation lines start with a blank.
std::string kmsg_text(std::string_view record) {
  const auto semicolon = record.find(';');
  if (semicolon == std::string_view::npos) return {};
  const auto text = record.substr(semicolon + 1);
  return std::string(text.substr(0, text.find('\n')));
}

Reading<std::vector<std::string>> read_kmsg() {
  const int fd = ::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return base::absent_from_errno(errno);
  std::vector<std::string> lines;
  std::array<char, 8192> record{};
  while (lines.size() < kMaxKernelLines) {
    const auto got = ::read(fd, record.data(), record.size());
    if (got < 0 && errno == EPIPE) continue;  // records were overwritten while we read; go on with the next
    if (got <= 0) break;
    const auto text = kmsg_text({record.data(), static_cast<std::size_t>(got)});
    if (matters_in_kernel_log(text)) std::ranges::move(record_lines(text), std::back_inserter(lines));
  }
  ::close(fd);
  return lines;
}

Reading<std::vector<std::string>> read_journal(std::vector<std::string> arguments, bool filter) {
  base::ChildOptions options;
  options.argv = {"journalctl", "-q", "--no-pager", "-o", "cat", "-b"};
  std::ranges::move(arguments, std::back_inserter(options.argv));
  options.environment = base::current_environment();
  options.limit = kJournalLimit;
  const auto result = base::run_child(options);
  if (!result) return base::absent(Absent::not_there, result.error().message);
  if (!result->ok()) return base::absent(Absent::no_permission, base::printable(result->err, 200));
  std::vector<std::string> lines;
  for (auto line : base::lines(result->out)) {
    if (!filter || matters_in_kernel_log(line)) lines.emplace_back(line);
  }
  return lines;
}

/// The ring buffer where it may be read, else the journal; an ordinary user often sees neither.
Reading<std::vector<std::string>> read_kernel_log() {
  auto ring = read_kmsg();
  if (ring) return ring;
  auto journal = read_journal({"-k", "-n", "4000"}, true);
  if (journal && !journal->empty()) return journal;
  return base::absent(Absent::no_permission, "the kernel log may not be read; run as root, or join the group adm");
}

constexpr std::array kDaemons{"nv-fabricmanage", "nvidia-powerd", "nvidia-persiste", "nvidia-gridd", "nvidia-cuda-mps"};

std::vector<std::string> gpu_nodes_of(base::Files& files, const std::string& folder) {
  std::set<std::string> nodes;
  const auto descriptors = files.list(folder + "/fd");
  for (const auto& descriptor : descriptors.value_or(std::vector<std::string>{})) {
    const auto target = files.read_link(folder + "/fd/" + descriptor);
    if (target && target->starts_with("/dev/nvidia")) nodes.insert(*target);
  }
  return {nodes.begin(), nodes.end()};
}

/// "1234 (name with ) in it) S …": the name ends at the last parenthesis.
std::string state_of(std::string_view stat) {
  const auto close = stat.rfind(')');
  return close == std::string_view::npos || close + 2 >= stat.size() ? std::string{}
                                                                     : std::string(stat.substr(close + 2, 1));
}

void read_processes(model::System& system) {
  base::RealFiles files;
  const auto names = files.list("/proc");
  for (const auto& name : names.value_or(std::vector<std::string>{})) {
    const auto pid = base::number<int>(name);
    if (!pid) continue;
    const auto folder = "/proc/" + name;
    model::RunningProcess process;
    process.pid = *pid;
    process.name = files.read_line(folder + "/comm").value_or("");
    process.gpu_nodes = gpu_nodes_of(files, folder);
    const bool daemon =
        std::ranges::any_of(kDaemons, [&](const char* known) { return process.name.starts_with(known); });
    if (!daemon && process.gpu_nodes.empty()) continue;
    process.state = state_of(files.read_line(folder + "/stat").value_or(""));
    system.processes.push_back(std::move(process));
  }
}

bool is_gpu_package(std::string_view name) {
  constexpr std::array kParts{"nvidia", "cuda", "cudnn", "nccl"};
  return std::ranges::any_of(kParts, [&](const char* part) { return base::contains(name, part); });
}

/// dpkg's database: stanzas of "Package:", "Status:", "Version:". Other distributions keep theirs in binary form.
void read_packages(model::System& system) {
  std::ifstream in("/var/lib/dpkg/status");
  std::string line;
  std::string package;
  bool installed = false;
  while (std::getline(in, line)) {
    if (line.starts_with("Package: ")) {
      package = line.substr(9);
      installed = false;
    } else if (line.starts_with("Status: ")) {
      installed = line.ends_with(" installed");
    } else if (line.starts_with("Version: ") && installed && is_gpu_package(package)) {
      system.packages.emplace(package, line.substr(9));
    }
  }
}

void read_interfaces(model::System& system) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return;
  std::set<std::string> up;
  for (const auto* at = all; at != nullptr; at = at->ifa_next) {
    const bool has_address =
        at->ifa_addr != nullptr && (at->ifa_addr->sa_family == AF_INET || at->ifa_addr->sa_family == AF_INET6);
    if (has_address && (at->ifa_flags & IFF_UP) != 0) up.insert(at->ifa_name);
  }
  ::freeifaddrs(all);
  system.interfaces.assign(up.begin(), up.end());
}

}  // namespace

bool matters_in_kernel_log(std::string_view line) {
  constexpr std::array kParts{"NVRM",
                              "nvidia",
                              "nouveau",
                              "Xid",
                              "vfio",
                              "AER:",
                              "PCIe Bus Error",
                              "BAR ",
                              "10de",
                              "PM: suspend",
                              "PM: resume",
                              "Lockdown",
                              "module verification",
                              "Key was rejected",
                              "unsigned module",
                              "is rejected",
                              "PKCS#7",
                              "Out of memory",
                              "oom-kill",
                              "available PCIe bandwidth",
                              "avc:"};
  return std::ranges::any_of(kParts, [&](const char* part) { return base::contains(line, part); });
}

model::System read_system() {
  model::System system;
  utsname names{};
  if (::uname(&names) == 0) {
    system.kernel = names.release;
    system.machine = names.machine;
  }
  system.uid = ::geteuid();
  system.groups.resize(256);
  const int groups = ::getgroups(256, system.groups.data());
  system.groups.resize(static_cast<std::size_t>(std::max(groups, 0)));
  system.groups.push_back(::getegid());
  system.cpus = allowed_cpus();
  system.online_cpus = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  system.limit_address_space = limit_of(RLIMIT_AS);
  system.limit_memlock = limit_of(RLIMIT_MEMLOCK);
  system.limit_open_files = limit_of(RLIMIT_NOFILE);
  read_shm(system);
  system.kernel_log = read_kernel_log();
  read_interfaces(system);
  read_processes(system);
  read_packages(system);
  const bool powerd = std::ranges::any_of(system.processes, [](const auto& p) { return p.name == "nvidia-powerd"; });
  if (powerd) {
    if (auto log = read_journal({"-u", "nvidia-powerd", "-n", "50"}, false))
      system.service_logs["nvidia-powerd"] = *log;
  }
  return system;
}

}  // namespace fullwatt::doctor
