#pragma once

#include <map>
#include <string>
#include <vector>

#include "fullwatt/base/reading.hpp"
#include "fullwatt/model/hardware.hpp"

namespace fullwatt::model {

/// A device node and what opening it answered.
struct DeviceNode {
  std::string path;
  int major = 0;
  int minor = 0;
  int mode = 0;
  int uid = 0;
  int gid = 0;
  Reading<int> open_error;  ///< errno of open(2), 0 when it works; not asked for nodes whose opening wakes the GPU

  static void fields(auto& self, auto&& visit) {
    visit("path", self.path);
    visit("major", self.major);
    visit("minor", self.minor);
    visit("mode", self.mode);
    visit("uid", self.uid);
    visit("gid", self.gid);
    visit("open_error", self.open_error);
  }
};

/// A daemon the driver's features depend on.
struct Service {
  std::string unit;  ///< such as nvidia-powerd
  bool installed = false;
  bool running = false;
  std::string version;           ///< of its package or binary where known
  std::vector<std::string> log;  ///< its last lines in the journal, where readable

  static void fields(auto& self, auto&& visit) {
    visit("unit", self.unit);
    visit("installed", self.installed);
    visit("running", self.running);
    visit("version", self.version);
    visit("log", self.log);
  }
};

/// Container facts, as seen from inside one or from its host.
struct Container {
  std::string kind;  ///< docker, podman, kubernetes, lxc, apptainer, unknown; empty outside a container
  bool docker_installed = false;
  bool docker_from_snap = false;
  Reading<bool> docker_nvidia_runtime;  ///< the nvidia runtime stands in daemon.json
  bool toolkit_installed = false;       ///< nvidia-ctk
  Reading<bool> toolkit_no_cgroups;     ///< no-cgroups in the toolkit's config.toml
  Reading<bool> rootless;
  std::vector<ConfigLine> cdi_versions;  ///< driver versions named inside CDI specifications
  Reading<bool> char_links;              ///< /dev/char/195:* exist
  Reading<bool> selinux_enforcing;

  bool inside() const { return !kind.empty(); }
  static void fields(auto& self, auto&& visit) {
    visit("kind", self.kind);
    visit("docker_installed", self.docker_installed);
    visit("docker_from_snap", self.docker_from_snap);
    visit("docker_nvidia_runtime", self.docker_nvidia_runtime);
    visit("toolkit_installed", self.toolkit_installed);
    visit("toolkit_no_cgroups", self.toolkit_no_cgroups);
    visit("rootless", self.rootless);
    visit("cdi_versions", self.cdi_versions);
    visit("char_links", self.char_links);
    visit("selinux_enforcing", self.selinux_enforcing);
  }
};

struct Wsl {
  int version = 0;  ///< 0: not WSL
  bool dxg = false;
  bool libcuda = false;         ///< /usr/lib/wsl/lib/libcuda.so.1
  bool on_loader_path = false;  ///< /usr/lib/wsl/lib is searched by the loader

  static void fields(auto& self, auto&& visit) {
    visit("version", self.version);
    visit("dxg", self.dxg);
    visit("libcuda", self.libcuda);
    visit("on_loader_path", self.on_loader_path);
  }
};

/// Layer 2: the kernel module and what leads to it.
struct Driver {
  std::string kernel;            ///< uname -r
  std::string distribution;      ///< ID of os-release, such as ubuntu
  bool loaded = false;           ///< /sys/module/nvidia
  Reading<std::string> version;  ///< of the loaded module
  std::string flavour;           ///< open, closed; empty when unknown
  bool uvm_loaded = false;
  Reading<bool> uvm_hmm_disabled;
  bool nouveau_loaded = false;
  std::map<std::string, std::string> params;      ///< /proc/driver/nvidia/params
  std::vector<std::string> module_files;          ///< nvidia.ko* for this kernel
  std::vector<std::string> module_other_kernels;  ///< kernels that do have one
  Reading<bool> module_signed;
  bool kernel_headers = false;         ///< /lib/modules/<kernel>/build
  std::vector<ConfigLine> blacklists;  ///< lines that keep nvidia from loading
  std::vector<ConfigLine> vfio_ids;    ///< options vfio-pci ids=10de:…
  std::string kernel_command_line;
  Reading<bool> secure_boot;
  Reading<std::vector<std::string>> gsp_firmware;  ///< versions under /lib/firmware/nvidia
  std::vector<DeviceNode> nodes;
  Reading<int> uvm_major;  ///< from /proc/devices
  std::vector<Service> services;
  Reading<std::vector<std::string>> kernel_log;
  Container container;
  Wsl wsl;
  std::string hypervisor;             ///< of a virtual machine; empty on bare metal
  Reading<int> suspends;              ///< times the machine slept and woke since it was started
  Reading<bool> signatures_enforced;  ///< the kernel loads no module without a key it trusts

  const DeviceNode* node(std::string_view path) const;
  const Service* service(std::string_view unit) const;
  bool running(std::string_view unit) const;
  static void fields(auto& self, auto&& visit) {
    visit("kernel", self.kernel);
    visit("distribution", self.distribution);
    visit("loaded", self.loaded);
    visit("version", self.version);
    visit("flavour", self.flavour);
    visit("uvm_loaded", self.uvm_loaded);
    visit("uvm_hmm_disabled", self.uvm_hmm_disabled);
    visit("nouveau_loaded", self.nouveau_loaded);
    visit("params", self.params);
    visit("module_files", self.module_files);
    visit("module_other_kernels", self.module_other_kernels);
    visit("module_signed", self.module_signed);
    visit("kernel_headers", self.kernel_headers);
    visit("blacklists", self.blacklists);
    visit("vfio_ids", self.vfio_ids);
    visit("kernel_command_line", self.kernel_command_line);
    visit("secure_boot", self.secure_boot);
    visit("gsp_firmware", self.gsp_firmware);
    visit("nodes", self.nodes);
    visit("uvm_major", self.uvm_major);
    visit("services", self.services);
    visit("kernel_log", self.kernel_log);
    visit("container", self.container);
    visit("wsl", self.wsl);
    visit("hypervisor", self.hypervisor);
    visit("suspends", self.suspends);
    visit("signatures_enforced", self.signatures_enforced);
  }
};

}  // namespace fullwatt::model
