#include <algorithm>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/probe/probes.hpp"

namespace fullwatt::doctor {
namespace {

using base::Absent;
using base::Files;
using base::Reading;

std::string container_kind(Files& files) {
  if (files.exists("/var/run/secrets/kubernetes.io")) return "kubernetes";
  if (files.exists("/run/.containerenv")) return "podman";
  if (files.exists("/.dockerenv")) return "docker";
  if (files.exists("/.singularity.d")) return "apptainer";
  const auto cgroup = files.read("/proc/1/cgroup").value_or("");
  if (base::contains(cgroup, "kubepods")) return "kubernetes";
  if (base::contains(cgroup, "docker")) return "docker";
  if (base::contains(cgroup, "/lxc")) return "lxc";
  // systemd calls WSL a container too; for the driver it is not one.
  const auto environment = files.read_line("/run/systemd/container");
  return environment && *environment != "wsl" ? *environment : std::string{};
}

/// The value of a plain `name = value` line in a TOML file; enough for the one setting that matters.
Reading<bool> toml_switch(Files& files, const std::string& path, std::string_view name) {
  const auto text = files.read(path);
  if (!text) return text.error();
  for (auto line : base::lines(*text)) {
    const auto equals = line.find('=');
    if (equals == std::string_view::npos || base::trim(line.substr(0, equals)) != name) continue;
    return base::trim(line.substr(equals + 1)).starts_with("true");
  }
  return base::absent(Absent::not_there);
}

/// Driver versions that a CDI specification names, such as the 535.161.07 of libcuda.so.535.161.07.
void read_cdi(Files& files, model::Container& container) {
  for (const std::string folder : {"/etc/cdi", "/var/run/cdi"}) {
    const auto names = files.list(folder);
    if (!names) continue;
    for (const auto& name : *names) {
      const auto path = folder + "/" + name;
      const auto text = files.grep(path, "libcuda.so.");
      if (!text) continue;
      for (auto line : base::lines(*text)) {
        const auto at = line.find("libcuda.so.");
        const auto version = line.substr(at + 11);
        const auto end = version.find_first_not_of("0123456789.");
        const auto digits = version.substr(0, end);
        if (!base::contains(digits, ".")) continue;
        container.cdi_versions.push_back({path, 0, std::string(digits)});
        break;
      }
    }
  }
}

void read_docker(Files& files, model::Container& container) {
  container.docker_from_snap = files.exists("/snap/bin/docker");
  container.docker_installed =
      files.exists("/usr/bin/docker") || files.exists("/usr/bin/dockerd") || container.docker_from_snap;
  container.toolkit_installed =
      files.exists("/usr/bin/nvidia-ctk") || files.exists("/usr/local/nvidia/toolkit/nvidia-ctk");
  const auto daemon = files.read("/etc/docker/daemon.json");
  container.docker_nvidia_runtime =
      daemon ? Reading<bool>(base::contains(*daemon, "nvidia-container-runtime")) : daemon.error();
}

}  // namespace

model::Container probe_container(base::Files& files) {
  model::Container container;
  container.kind = container_kind(files);
  read_docker(files, container);
  container.toolkit_no_cgroups = toml_switch(files, "/etc/nvidia-container-runtime/config.toml", "no-cgroups");
  read_cdi(files, container);
  const auto links = files.list("/dev/char", "195:");
  const auto is_nvidia = [](const std::string& name) { return name.starts_with("195:"); };
  container.char_links = links ? Reading<bool>(std::ranges::any_of(*links, is_nvidia)) : links.error();
  const auto enforce = files.read_line("/sys/fs/selinux/enforce");
  container.selinux_enforcing = enforce ? Reading<bool>(*enforce == "1") : enforce.error();
  return container;
}

}  // namespace fullwatt::doctor
