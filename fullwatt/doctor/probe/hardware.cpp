#include <algorithm>
#include <array>
#include <map>

#include "catalog/catalog.hpp"

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/probe/probes.hpp"

namespace fullwatt::doctor {
namespace {

using base::Absent;
using base::Files;
using base::Reading;
using model::PciGpu;

const std::string kPci = "/sys/bus/pci/devices/";
const std::string kProcGpus = "/proc/driver/nvidia/gpus/";

template <class T>
Reading<T> read_number(Files& files, const std::string& path, int radix = 10) {
  const auto text = files.read_line(path);
  if (!text) return text.error();
  const auto value = base::number<T>(*text, radix);
  if (!value) return base::absent(Absent::failed, *text);
  return *value;
}

/// "16.0 GT/s PCIe" → 16; "Unknown" is unsupported.
Reading<double> read_rate(Files& files, const std::string& path) {
  const auto text = files.read_line(path);
  if (!text) return text.error();
  double rate = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), rate);
  if (error != std::errc{} || rate <= 0) return base::absent(Absent::unsupported, *text);
  return rate;
}

/// Width 0 and 255 mean that the link has no width to tell (virtual or integrated devices).
Reading<int> read_width(Files& files, const std::string& path) {
  auto width = read_number<int>(files, path);
  if (width && (*width <= 0 || *width >= 255)) return base::absent(Absent::unsupported);
  return width;
}

std::vector<model::Bar> read_bars(Files& files, const std::string& folder) {
  std::vector<model::Bar> bars;
  const auto text = files.read(folder + "resource");
  if (!text) return bars;
  for (auto line : base::lines(*text)) {
    const auto parts = base::split(line, ' ');
    if (parts.size() != 3 || bars.size() == 6) continue;
    bars.push_back({base::number<std::uint64_t>(parts[0], 16).value_or(0),
                    base::number<std::uint64_t>(parts[1], 16).value_or(0),
                    base::number<std::uint64_t>(parts[2], 16).value_or(0)});
  }
  return bars;
}

/// The PCI addresses above a device, from the path that its sysfs link shows.
std::vector<std::string> read_bridges(Files& files, const std::string& bdf) {
  std::vector<std::string> bridges;
  const auto link = files.read_link(kPci + bdf);
  if (!link) return bridges;
  for (auto part : base::split(*link, '/')) {
    if (part.size() == 12 && part[4] == ':' && part != bdf) bridges.emplace_back(part);
  }
  return bridges;
}

std::uint32_t config_word(const std::string& config, std::size_t at, std::size_t bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < bytes && at + i < config.size(); ++i) {
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(config[at + i])) << (8 * i);
  }
  return value;
}

/// Whether a bridge redirects peer traffic: request redirect in the control word of its ACS capability (id 0x0d in the
/// extended list, PCI Express base specification 7.7.11). Readable by root only.
bool redirects_peers(const std::string& config) {
  constexpr std::uint32_t kAcs = 0x0d;
  constexpr std::uint32_t kRequestRedirect = 0x04;
  std::size_t at = 0x100;
  for (int hops = 0; hops < 64 && at >= 0x100 && at + 8 <= config.size(); ++hops) {
    const auto header = config_word(config, at, 4);
    if ((header & 0xFFFFU) == kAcs) return (config_word(config, at + 6, 2) & kRequestRedirect) != 0;
    at = header >> 20U;
  }
  return false;
}

std::map<std::string, std::string> read_colon_file(Files& files, const std::string& path) {
  std::map<std::string, std::string> values;
  const auto text = files.read(path);
  if (!text) return values;
  for (auto line : base::lines(*text)) {
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    values.emplace(base::trim(line.substr(0, colon)), base::trim(line.substr(colon + 1)));
  }
  return values;
}

Reading<std::string> value_in(const std::map<std::string, std::string>& values, const std::string& name) {
  const auto at = values.find(name);
  if (at == values.end()) return base::absent(Absent::not_there);
  return at->second;
}

void read_nvidia_proc(Files& files, PciGpu& gpu) {
  const auto information = read_colon_file(files, kProcGpus + gpu.bdf + "/information");
  gpu.proc_model = value_in(information, "Model");
  gpu.proc_uuid = value_in(information, "GPU UUID");
  gpu.proc_video_bios = value_in(information, "Video BIOS");
  gpu.proc_firmware = value_in(information, "GPU Firmware");
  gpu.proc_excluded = value_in(information, "GPU Excluded");
  if (const auto minor = value_in(information, "Device Minor")) gpu.proc_minor = base::number<int>(*minor).value_or(0);
  const auto power = read_colon_file(files, kProcGpus + gpu.bdf + "/power");
  gpu.proc_runtime_d3 = value_in(power, "Runtime D3 status");
  gpu.proc_dynamic_boost = value_in(power, "Notebook Dynamic Boost");
  if (gpu.proc_model) gpu.name = *gpu.proc_model;
}

/// AMD's APUs have a northbridge voltage sensor, discrete cards have none (fastfetch's rule).
bool has_northbridge_sensor(Files& files, const std::string& folder) {
  const auto monitors = files.list(folder + "hwmon");
  if (!monitors) return false;
  return std::ranges::any_of(*monitors,
                             [&](const auto& name) { return files.exists(folder + "hwmon/" + name + "/in1_input"); });
}

void decide_discrete(Files& files, PciGpu& gpu, bool tegra) {
  const auto folder = kPci + gpu.bdf + "/";
  if (gpu.vendor == model::kIntel) {
    gpu.discrete = !gpu.bdf.ends_with(":00:02.0");
    gpu.discrete_reason =
        gpu.discrete ? "an Intel GPU away from address 00:02.0" : "Intel's integrated GPU sits at 00:02.0";
  } else if (gpu.vendor == model::kAmd) {
    gpu.discrete = !has_northbridge_sensor(files, folder);
    gpu.discrete_reason =
        gpu.discrete ? "no northbridge voltage sensor" : "a northbridge voltage sensor, which only APUs have";
  } else if (gpu.vendor == model::kNvidia) {
    gpu.discrete = !tegra;
    gpu.discrete_reason = tegra ? "part of a Tegra system on a chip" : "an NVIDIA GPU on the PCI bus";
  } else {
    gpu.discrete_reason = "a virtual or service-processor display";
  }
}

/// The name of the vendor's generation, for GPUs that no driver has named.
void name_by_device(PciGpu& gpu) {
  if (!gpu.name.empty()) return;
  constexpr std::array kNames{std::pair{model::kIntel, "Intel graphics"}, std::pair{model::kAmd, "AMD graphics"},
                              std::pair{0x1a03, "ASPEED display"},        std::pair{0x1af4, "virtio display"},
                              std::pair{0x1234, "QEMU display"},          std::pair{0x15ad, "VMware display"},
                              std::pair{0x1414, "Hyper-V display"}};
  const auto at = std::ranges::find(kNames, gpu.vendor, &std::pair<int, const char*>::first);
  if (at != kNames.end()) gpu.name = at->second;
  if (gpu.vendor != model::kNvidia) return;
  const auto* architecture = catalog::architecture_of(gpu.device);
  gpu.name = architecture != nullptr ? "NVIDIA " + std::string(architecture->name) + " GPU" : "NVIDIA GPU";
}

PciGpu read_gpu(Files& files, const std::string& bdf, int vendor, int pci_class, bool tegra) {
  const auto folder = kPci + bdf + "/";
  PciGpu gpu;
  gpu.bdf = bdf;
  gpu.vendor = vendor;
  gpu.pci_class = pci_class;
  gpu.device = read_number<int>(files, folder + "device", 16).value_or(0);
  const auto driver = files.read_link(folder + "driver");
  gpu.driver = driver ? Reading<std::string>(std::string(base::file_name(*driver))) : driver;
  gpu.power_state = files.read_line(folder + "power_state");
  gpu.runtime_status = files.read_line(folder + "power/runtime_status");
  gpu.link_width = read_width(files, folder + "current_link_width");
  gpu.max_link_width = read_width(files, folder + "max_link_width");
  gpu.link_gts = read_rate(files, folder + "current_link_speed");
  gpu.max_link_gts = read_rate(files, folder + "max_link_speed");
  gpu.numa_node = read_number<int>(files, folder + "numa_node");
  gpu.local_cpus = files.read_line(folder + "local_cpulist");
  gpu.bars = read_bars(files, folder);
  gpu.bridges = read_bridges(files, bdf);
  if (!gpu.bridges.empty()) gpu.port_max_width = read_width(files, kPci + gpu.bridges.back() + "/max_link_width");
  // Configuration space is only read while the device is awake: reading it in D3cold returns ones without meaning it.
  if (vendor == model::kNvidia && !gpu.asleep()) {
    const auto config = files.read(folder + "config", 64);
    gpu.config_all_ones =
        config && config->size() >= 16 && std::ranges::all_of(*config, [](char c) { return c == '\xff'; });
    for (const auto& bridge : gpu.bridges) {
      const auto bridge_config = files.read(kPci + bridge + "/config", 4096);
      if (bridge_config && redirects_peers(*bridge_config)) gpu.redirecting_bridges.push_back(bridge);
    }
  }
  if (vendor == model::kNvidia) read_nvidia_proc(files, gpu);
  decide_discrete(files, gpu, tegra);
  name_by_device(gpu);
  return gpu;
}

void read_bus(Files& files, model::Hardware& hardware) {
  const auto devices = files.list("/sys/bus/pci/devices");
  if (!devices) {
    hardware.pci_devices = devices.error();
    return;
  }
  hardware.pci_devices = static_cast<int>(devices->size());
  for (const auto& bdf : *devices) {
    const auto pci_class = read_number<int>(files, kPci + bdf + "/class", 16).value_or(0);
    const auto vendor = read_number<int>(files, kPci + bdf + "/vendor", 16).value_or(0);
    if (vendor == model::kNvidia && pci_class >> 8 == 0x0680) ++hardware.nvswitches;
    // A virtual function is a slice that a host hands to its guests, not a GPU of its own.
    if (files.read_link(kPci + bdf + "/physfn")) continue;
    if (pci_class >> 16 == 0x03) hardware.gpus.push_back(read_gpu(files, bdf, vendor, pci_class, hardware.soc_tegra));
  }
}

void read_power_supplies(Files& files, model::Hardware& hardware) {
  const std::string root = "/sys/class/power_supply";
  const auto names = files.list(root);
  if (!names) return;
  for (const auto& name : *names) {
    // The battery of a wireless mouse says nothing about the machine.
    if (files.read_line(root + "/" + name + "/scope").is("Device")) continue;
    model::PowerSupply supply;
    supply.name = name;
    supply.type = files.read_line(root + "/" + name + "/type").value_or("");
    const auto online = read_number<int>(files, root + "/" + name + "/online");
    supply.online = online ? Reading<bool>(*online != 0) : online.error();
    hardware.power_supplies.push_back(std::move(supply));
  }
}

/// Whether a udev rule deletes NVIDIA's display device. NVIDIA's own rules delete only the audio and USB functions
/// beside it, which is harmless.
bool removes_gpu(std::string_view line) {
  if (base::trim(line).starts_with('#')) return false;
  if (!base::contains(line, "ATTR{remove}=\"1\"") || !base::contains(line, "0x10de")) return false;
  const auto at = line.find("ATTR{class}==");
  return at == std::string_view::npos || base::contains(line.substr(at, line.find(',', at) - at), "0x03");
}

void read_removal_rule(Files& files, const std::string& path, model::Hardware& hardware) {
  const auto text = files.read(path);
  if (!text) return;
  int number = 0;
  for (auto line : base::lines(*text)) {
    ++number;
    if (!removes_gpu(line)) continue;
    hardware.removal_rules.push_back({path, number, std::string(base::trim(line))});
    return;
  }
}

/// Rules that envycontrol, prime-select and their kin leave behind: they delete the NVIDIA device at every boot. An
/// administrator's rules may have any name; of the many that packages bring only those named after NVIDIA are read.
void read_removal_rules(Files& files, model::Hardware& hardware) {
  for (const std::string folder :
       {"/etc/udev/rules.d", "/run/udev/rules.d", "/lib/udev/rules.d", "/usr/lib/udev/rules.d"}) {
    const bool from_packages = folder.starts_with("/lib") || folder.starts_with("/usr");
    const auto names = files.list(folder);
    for (const auto& name : names.value_or(std::vector<std::string>{})) {
      if (!name.ends_with(".rules") || (from_packages && !base::contains(base::lower(name), "nvidia"))) continue;
      read_removal_rule(files, folder + "/" + name, hardware);
    }
  }
  const std::string tmpfile = "/etc/tmpfiles.d/nvidia_no_gpu.conf";
  if (files.exists(tmpfile)) hardware.removal_rules.push_back({tmpfile, 1, files.read_line(tmpfile).value_or("")});
}

/// What supergfxctl was last told, where that was to do without the discrete GPU.
void read_integrated_modes(Files& files, model::Hardware& hardware) {
  const std::string path = "/etc/supergfxd.conf";
  const auto text = files.read(path);
  if (!text) return;
  int number = 0;
  for (auto line : base::lines(*text)) {
    ++number;
    const auto setting = base::trim(line);
    if (!setting.starts_with("\"mode\"") || !base::contains(setting, "\"Integrated\"")) continue;
    hardware.integrated_modes.push_back({path, number, std::string(setting)});
  }
}

}  // namespace

model::Hardware probe_hardware(base::Files& files) {
  model::Hardware hardware;
  hardware.soc_tegra = files.read_line("/sys/devices/soc0/family").is("Tegra");
  hardware.chassis_type = read_number<int>(files, "/sys/class/dmi/id/chassis_type");
  read_bus(files, hardware);
  read_power_supplies(files, hardware);
  read_removal_rules(files, hardware);
  read_integrated_modes(files, hardware);
  hardware.platform_profile = files.read_line("/sys/firmware/acpi/platform_profile");
  auto disabled = files.read_line("/sys/devices/platform/asus-nb-wmi/dgpu_disable");
  if (!disabled) {
    disabled = files.read_line("/sys/class/firmware-attributes/asus-armoury/attributes/dgpu_disable/current_value");
  }
  hardware.vendor_dgpu_disabled = disabled ? Reading<bool>(*disabled == "1") : disabled.error();
  return hardware;
}

}  // namespace fullwatt::doctor
