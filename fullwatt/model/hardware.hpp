#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullwatt/base/reading.hpp"

namespace fullwatt::model {

using base::Reading;

constexpr int kNvidia = 0x10de;
constexpr int kAmd = 0x1002;
constexpr int kIntel = 0x8086;

/// One base address register, a line of sysfs `resource`.
struct Bar {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t flags = 0;  ///< 0: not implemented by the device

  bool assigned() const { return start != 0; }
  std::uint64_t size() const { return end >= start && flags != 0 ? end - start + 1 : 0; }
  static void fields(auto& self, auto&& visit) {
    visit("start", self.start);
    visit("end", self.end);
    visit("flags", self.flags);
  }
};

/// A display-class PCI device of any vendor, from sysfs alone: reading it wakes nothing.
struct PciGpu {
  std::string bdf;  ///< PCI address such as 0000:01:00.0
  int vendor = 0;
  int device = 0;
  int pci_class = 0;  ///< 0x030000 VGA, 0x030200 3D, 0x038000 display
  std::string name;   ///< as the driver or the catalogue names it; may be empty
  bool discrete = false;
  std::string discrete_reason;          ///< how we know
  Reading<std::string> driver;          ///< bound kernel driver
  Reading<std::string> power_state;     ///< D0, D3hot, D3cold
  Reading<std::string> runtime_status;  ///< active, suspended
  Reading<int> link_width;
  Reading<int> max_link_width;
  Reading<double> link_gts;  ///< current transfer rate, GT/s; low at idle is normal
  Reading<double> max_link_gts;
  Reading<int> numa_node;
  Reading<std::string> local_cpus;
  std::vector<Bar> bars;
  bool config_all_ones = false;                  ///< the device no longer answers on the bus
  std::vector<std::string> bridges;              ///< PCI addresses above it, root first
  std::vector<std::string> redirecting_bridges;  ///< those whose ACS redirects peer traffic, where readable

  // From /proc/driver/nvidia/gpus/<BDF>, present once NVIDIA's module has taken the device.
  Reading<std::string> proc_model;
  Reading<std::string> proc_uuid;
  Reading<std::string> proc_video_bios;
  Reading<std::string> proc_firmware;
  Reading<std::string> proc_excluded;
  Reading<int> proc_minor;
  Reading<std::string> proc_runtime_d3;
  Reading<std::string> proc_dynamic_boost;
  Reading<int> port_max_width;  ///< the most lanes that the port above it offers

  bool is_nvidia() const { return vendor == kNvidia; }
  bool asleep() const { return runtime_status.is("suspended") || power_state.is("D3cold"); }
  static void fields(auto& self, auto&& visit) {
    visit("bdf", self.bdf);
    visit("vendor", self.vendor);
    visit("device", self.device);
    visit("class", self.pci_class);
    visit("name", self.name);
    visit("discrete", self.discrete);
    visit("discrete_reason", self.discrete_reason);
    visit("driver", self.driver);
    visit("power_state", self.power_state);
    visit("runtime_status", self.runtime_status);
    visit("link_width", self.link_width);
    visit("max_link_width", self.max_link_width);
    visit("link_gts", self.link_gts);
    visit("max_link_gts", self.max_link_gts);
    visit("numa_node", self.numa_node);
    visit("local_cpus", self.local_cpus);
    visit("bars", self.bars);
    visit("config_all_ones", self.config_all_ones);
    visit("bridges", self.bridges);
    visit("redirecting_bridges", self.redirecting_bridges);
    visit("proc_model", self.proc_model);
    visit("proc_uuid", self.proc_uuid);
    visit("proc_video_bios", self.proc_video_bios);
    visit("proc_firmware", self.proc_firmware);
    visit("proc_excluded", self.proc_excluded);
    visit("proc_minor", self.proc_minor);
    visit("proc_runtime_d3", self.proc_runtime_d3);
    visit("proc_dynamic_boost", self.proc_dynamic_boost);
    visit("port_max_width", self.port_max_width);
  }
};

struct PowerSupply {
  std::string name;
  std::string type;  ///< Mains, Battery, USB
  Reading<bool> online;

  static void fields(auto& self, auto&& visit) {
    visit("name", self.name);
    visit("type", self.type);
    visit("online", self.online);
  }
};

/// A line in a configuration file that matters: where it stands and what it says.
struct ConfigLine {
  std::string path;
  int line = 0;
  std::string text;

  static void fields(auto& self, auto&& visit) {
    visit("path", self.path);
    visit("line", self.line);
    visit("text", self.text);
  }
};

/// Layer 1: what is on the bus, read without waking anything.
struct Hardware {
  Reading<int> pci_devices;  ///< all devices on the bus; tells "no bus visible" from "no GPU"
  std::vector<PciGpu> gpus;
  int nvswitches = 0;
  bool soc_tegra = false;
  Reading<int> chassis_type;  ///< DMI code; 9, 10, 14, 31 are portable
  std::vector<PowerSupply> power_supplies;
  std::vector<ConfigLine> removal_rules;     ///< udev rules and tmpfiles that remove the NVIDIA device at boot
  Reading<bool> vendor_dgpu_disabled;        ///< a laptop vendor's switch (asus-nb-wmi) that powers the GPU off
  std::vector<ConfigLine> integrated_modes;  ///< settings of GPU switchers that turn the discrete GPU off
  Reading<std::string> platform_profile;     ///< ACPI power profile of a laptop, such as low-power or performance

  std::vector<const PciGpu*> nvidia() const {
    std::vector<const PciGpu*> found;
    for (const auto& gpu : gpus) {
      if (gpu.is_nvidia()) found.push_back(&gpu);
    }
    return found;
  }
  bool portable() const;
  static void fields(auto& self, auto&& visit) {
    visit("pci_devices", self.pci_devices);
    visit("gpus", self.gpus);
    visit("nvswitches", self.nvswitches);
    visit("soc_tegra", self.soc_tegra);
    visit("chassis_type", self.chassis_type);
    visit("power_supplies", self.power_supplies);
    visit("removal_rules", self.removal_rules);
    visit("vendor_dgpu_disabled", self.vendor_dgpu_disabled);
    visit("integrated_modes", self.integrated_modes);
    visit("platform_profile", self.platform_profile);
  }
};

}  // namespace fullwatt::model
