#include <algorithm>
#include <array>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/probe/probes.hpp"

namespace fullwatt::doctor {
namespace {

using base::Absent;
using base::Files;
using base::Reading;

/// Lines of the files in a configuration folder that a predicate accepts, comments left out.
template <class Accept>
std::vector<model::ConfigLine> config_lines(Files& files, const std::string& folder, Accept accept) {
  std::vector<model::ConfigLine> found;
  const auto names = files.list(folder);
  if (!names) return found;
  for (const auto& name : *names) {
    const auto path = folder + "/" + name;
    const auto text = name.ends_with(".conf") ? files.read(path) : Reading<std::string>();
    if (!text) continue;
    int number = 0;
    for (auto line : base::lines(*text)) {
      ++number;
      const auto trimmed = base::trim(line);
      if (!trimmed.starts_with('#') && accept(trimmed)) found.push_back({path, number, std::string(trimmed)});
    }
  }
  return found;
}

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (line = base::trim(line); !line.empty(); line = base::trim(line)) {
    const auto end = std::min(line.find_first_of(" \t\n"), line.size());
    words.emplace_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return words;
}

/// "blacklist nvidia", "install nvidia /bin/false" or "alias nvidia off", as envycontrol and prime-select write them.
bool keeps_nvidia_out(std::string_view line) {
  constexpr std::array kNothing{"/bin/false", "/bin/true", "/usr/bin/false", "/usr/bin/true"};
  const auto words = words_of(line);
  if (words.size() < 2 || (words[1] != "nvidia" && words[1] != "nvidia-current")) return false;
  if (words[0] == "blacklist") return true;
  if (words.size() < 3) return false;
  return (words[0] == "install" && std::ranges::find(kNothing, words[2]) != kNothing.end()) ||
         (words[0] == "alias" && words[2] == "off");
}

bool reserves_for_vfio(std::string_view line) {
  return line.starts_with("options") && base::contains(line, "vfio-pci") && base::contains(base::lower(line), "10de:");
}

/// Adds what is not known yet: on most systems /lib is /usr/lib, and each file is met twice.
void add_new(std::vector<model::ConfigLine>& known, std::vector<model::ConfigLine> found) {
  for (auto& line : found) {
    const auto same = [&](const auto& other) { return other.path == "/usr" + line.path && other.line == line.line; };
    if (std::ranges::none_of(known, same)) known.push_back(std::move(line));
  }
}

void read_module_options(Files& files, model::Driver& driver) {
  for (const std::string folder : {"/etc/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d", "/run/modprobe.d"}) {
    add_new(driver.blacklists, config_lines(files, folder, keeps_nvidia_out));
    add_new(driver.vfio_ids, config_lines(files, folder, reserves_for_vfio));
  }
  driver.kernel_command_line = files.read_line("/proc/cmdline").value_or("");
  for (const auto& word : words_of(driver.kernel_command_line)) {
    const auto equals = word.find('=');
    const auto name = word.substr(0, equals);
    if (equals == std::string::npos || (name != "module_blacklist" && name != "modprobe.blacklist")) continue;
    for (auto module : base::split(std::string_view(word).substr(equals + 1), ',')) {
      if (module == "nvidia") driver.blacklists.push_back({"/proc/cmdline", 1, word});
    }
  }
}

/// The module's text in /proc/driver/nvidia/version: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64 580.95.05
/// Release …".
void read_loaded_module(Files& files, model::Driver& driver) {
  driver.loaded = files.exists("/sys/module/nvidia");
  driver.uvm_loaded = files.exists("/sys/module/nvidia_uvm");
  driver.nouveau_loaded = files.exists("/sys/module/nouveau");
  driver.version = files.read_line("/sys/module/nvidia/version");
  const auto text = files.read("/proc/driver/nvidia/version");
  if (text) {
    driver.flavour = base::contains(*text, "Open Kernel Module") ? "open" : "closed";
    if (!driver.version) {
      for (const auto& word : words_of(*text)) {
        const auto digits = word.find_first_not_of("0123456789.");
        if (digits == std::string::npos && std::ranges::count(word, '.') >= 1) {
          driver.version = word;
          break;
        }
      }
    }
  }
  const auto hmm = files.read_line("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm");
  driver.uvm_hmm_disabled = hmm ? Reading<bool>(*hmm == "Y" || *hmm == "1") : hmm.error();
  if (const auto params = files.read("/proc/driver/nvidia/params")) {
    for (auto line : base::lines(*params)) {
      const auto colon = line.find(':');
      if (colon == std::string_view::npos) continue;
      driver.params.emplace(base::trim(line.substr(0, colon)), base::trim(line.substr(colon + 1)));
    }
  }
}

/// nvidia.ko, and Debian's nvidia-current.ko, nvidia-tesla-535.ko and nvidia-legacy-390xx.ko; not nvidia-uvm.ko and
/// others.
bool is_main_module(std::string_view file) {
  const auto name = file.substr(0, file.find(".ko"));
  if (name == "nvidia") return true;
  constexpr std::array kParts{"-uvm", "-drm", "-modeset", "-peermem"};
  const bool renamed =
      name.starts_with("nvidia-current") || name.starts_with("nvidia-tesla") || name.starts_with("nvidia-legacy");
  return renamed && std::ranges::none_of(kParts, [&](const char* part) { return name.ends_with(part); });
}

/// Paths of nvidia.ko in a kernel's modules.dep, which lists what modprobe can find.
std::vector<std::string> nvidia_modules(Files& files, const std::string& folder) {
  std::vector<std::string> found;
  const auto text = files.grep(folder + "/modules.dep", "nvidia");
  if (!text) return found;
  for (auto line : base::lines(*text)) {
    const auto path = line.substr(0, line.find(':'));
    if (!is_main_module(base::file_name(path))) continue;
    found.push_back(path.starts_with('/') ? std::string(path) : folder + "/" + std::string(path));
  }
  return found;
}

void read_module_files(Files& files, model::Driver& driver) {
  driver.module_files = nvidia_modules(files, "/lib/modules/" + driver.kernel);
  if (driver.module_files.empty()) {
    driver.module_files =
        nvidia_modules(files, "/run/booted-system/kernel-modules/lib/modules/" + driver.kernel);  // NixOS
  }
  driver.kernel_headers = files.exists("/lib/modules/" + driver.kernel + "/build");
  if (const auto kernels = files.list("/lib/modules")) {
    for (const auto& kernel : *kernels) {
      if (kernel == driver.kernel || nvidia_modules(files, "/lib/modules/" + kernel).empty()) continue;
      driver.module_other_kernels.push_back(kernel);
    }
  }
  const auto firmware = files.list("/lib/firmware/nvidia");
  driver.gsp_firmware = base::absent(Absent::not_there);
  if (!firmware) return;
  std::vector<std::string> versions;
  for (const auto& name : *firmware) {
    const auto blobs = files.list("/lib/firmware/nvidia/" + name);
    const auto is_gsp = [](const std::string& blob) { return blob.starts_with("gsp"); };
    if (blobs && std::ranges::any_of(*blobs, is_gsp)) versions.push_back(name);
  }
  driver.gsp_firmware = versions;
}

/// The EFI variable holds four bytes of attributes and the value; 1 is on.
void read_secure_boot(Files& files, model::Driver& driver) {
  const auto text = files.read("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c");
  if (!text) {
    driver.secure_boot = text.error();
  } else {
    driver.secure_boot = !text->empty() && text->back() == '\1';
  }
}

/// Lockdown, "none [integrity] confidentiality", or a switch of the kernel's own; either is enough.
Reading<bool> read_signatures_enforced(Files& files) {
  const auto lockdown = files.read_line("/sys/kernel/security/lockdown");
  const auto enforce = files.read_line("/sys/module/module/parameters/sig_enforce");
  if (enforce.is("Y") || (lockdown && !base::contains(*lockdown, "[none]"))) return true;
  if (enforce && lockdown) return false;
  return enforce ? lockdown.error() : enforce.error();
}

void read_node(Files& files, model::Driver& driver, const std::string& path, bool may_open) {
  const auto info = files.info(path);
  if (!info) return;
  model::DeviceNode node;
  node.path = path;
  node.major = static_cast<int>(info->major);
  node.minor = static_cast<int>(info->minor);
  node.mode = static_cast<int>(info->mode);
  node.uid = static_cast<int>(info->uid);
  node.gid = static_cast<int>(info->gid);
  if (may_open) node.open_error = files.open_error(path);
  driver.nodes.push_back(std::move(node));
}

void read_nodes(Files& files, model::Driver& driver) {
  // Opening nvidiactl and nvidia-uvm wakes nothing; opening nvidia0 does.
  read_node(files, driver, "/dev/nvidiactl", true);
  read_node(files, driver, "/dev/nvidia-uvm", true);
  for (int minor = 0; minor < 32; ++minor) read_node(files, driver, "/dev/nvidia" + std::to_string(minor), false);
  for (const std::string name : {"nvidia-modeset", "nvidia-nvswitchctl", "nvidia-uvm-tools", "dxg"}) {
    read_node(files, driver, "/dev/" + name, false);
  }
  driver.uvm_major = base::absent(Absent::not_there);
  const auto devices = files.read("/proc/devices");
  if (!devices) return;
  for (auto line : base::lines(*devices)) {
    const auto words = words_of(line);
    if (words.size() == 2 && words[1] == "nvidia-uvm") driver.uvm_major = base::number<int>(words[0]).value_or(0);
  }
}

struct KnownService {
  std::string_view unit;
  std::string_view process;  ///< as /proc/<pid>/comm shows it, at most 15 characters
};
constexpr std::array kServices{
    KnownService{"nvidia-fabricmanager", "nv-fabricmanage"},    KnownService{"nvidia-powerd", "nvidia-powerd"},
    KnownService{"nvidia-persistenced", "nvidia-persiste"},     KnownService{"nvidia-gridd", "nvidia-gridd"},
    KnownService{"nvidia-cuda-mps-control", "nvidia-cuda-mps"},
};

bool unit_installed(Files& files, const std::string& unit) {
  constexpr std::array kFolders{"/usr/lib/systemd/system/", "/lib/systemd/system/", "/etc/systemd/system/"};
  return std::ranges::any_of(kFolders, [&](const char* folder) { return files.exists(folder + unit + ".service"); });
}

void read_services(Files& files, const model::System& system, model::Driver& driver) {
  for (const auto& known : kServices) {
    model::Service service;
    service.unit = known.unit;
    service.installed = unit_installed(files, service.unit);
    service.running = std::ranges::any_of(system.processes, [&](const auto& p) { return p.name == known.process; });
    for (const auto& [package, version] : system.packages) {
      if (package.starts_with(known.unit)) service.version = version;
    }
    if (const auto log = system.service_logs.find(service.unit); log != system.service_logs.end())
      service.log = log->second;
    if (service.installed || service.running) driver.services.push_back(std::move(service));
  }
}

void read_wsl(Files& files, const base::Environment& environment, model::Driver& driver) {
  const auto kernel = base::lower(driver.kernel);
  if (!base::contains(kernel, "microsoft")) return;
  driver.wsl.version = base::contains(driver.kernel, "-Microsoft") ? 1 : 2;
  driver.wsl.dxg = files.exists("/dev/dxg");
  driver.wsl.libcuda = files.exists("/usr/lib/wsl/lib/libcuda.so.1");
  const auto folders = loader_folders(files, environment);
  driver.wsl.on_loader_path = std::ranges::find(folders, "/usr/lib/wsl/lib", &SearchFolder::path) != folders.end();
}

std::string read_hypervisor(Files& files) {
  const auto cpuinfo = files.grep("/proc/cpuinfo", "hypervisor");
  if (!cpuinfo || cpuinfo->empty()) return {};
  const auto product = files.read_line("/sys/class/dmi/id/sys_vendor");
  return product && !product->empty() ? *product : "unknown";
}

/// The kernel counts each sleep that it came back from; the file is readable where the kernel log is not.
Reading<int> read_suspends(Files& files) {
  const auto text = files.read_line("/sys/power/suspend_stats/success");
  if (!text) return text.error();
  const auto count = base::number<int>(*text);
  if (!count) return base::absent(Absent::failed, *text);
  return *count;
}

std::string read_distribution(Files& files) {
  const auto text = files.read("/etc/os-release");
  if (!text) return {};
  for (auto line : base::lines(*text)) {
    if (!line.starts_with("ID=")) continue;
    std::string id(base::trim(line.substr(3)));
    std::erase(id, '"');
    return id;
  }
  return {};
}

}  // namespace

model::Driver probe_driver(base::Files& files, const model::System& system, const base::Environment& environment) {
  model::Driver driver;
  driver.kernel = system.kernel;
  driver.distribution = read_distribution(files);
  read_loaded_module(files, driver);
  read_module_options(files, driver);
  read_module_files(files, driver);
  read_secure_boot(files, driver);
  read_nodes(files, driver);
  read_services(files, system, driver);
  driver.kernel_log = system.kernel_log;
  driver.container = probe_container(files);
  read_wsl(files, environment, driver);
  driver.hypervisor = read_hypervisor(files);
  driver.suspends = read_suspends(files);
  driver.signatures_enforced = read_signatures_enforced(files);
  return driver;
}

}  // namespace fullwatt::doctor
