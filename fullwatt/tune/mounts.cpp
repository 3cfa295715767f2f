#include "fullwatt/tune/mounts.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "fullwatt/base/text.hpp"

namespace fullwatt::tune {
namespace {

/// Blanks and backslashes stand as \040 and \134.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto code = text[i] == '\\' ? base::number<int>(text.substr(i + 1, 3), 8) : std::nullopt;
    out += code ? static_cast<char>(*code) : text[i];
    if (code) i += 3;
  }
  return out;
}

/// File systems that are doors to the kernel or to a service: a layer over them would cut the connection.
constexpr std::array<std::string_view, 22> kKernels{
    "proc",    "sysfs",      "devtmpfs", "devpts",   "mqueue",      "cgroup",    "cgroup2",   "securityfs",
    "debugfs", "tracefs",    "pstore",   "bpf",      "configfs",    "fusectl",   "hugetlbfs", "binfmt_misc",
    "autofs",  "rpc_pipefs", "nsfs",     "efivarfs", "fuse.portal", "fuse.lxcfs"};

bool lies_in(std::string_view path, std::string_view folder) {
  return path == folder || (path.starts_with(folder) && path.size() > folder.size() && path[folder.size()] == '/');
}

}  // namespace

std::vector<MountPoint> parse_mounts(std::string_view mountinfo) {
  std::map<std::string, MountPoint> by_path;
  for (const auto line : base::lines(mountinfo)) {
    const auto parts = base::split(line, ' ');
    const auto dash = std::ranges::find(parts, "-");
    if (dash - parts.begin() < 6 || parts.end() - dash < 2) continue;
    auto path = unescaped(parts[4]);
    if (!path.starts_with('/')) continue;
    by_path[path] = {path, std::string(*(dash + 1))};
  }
  std::vector<MountPoint> mounts;
  for (auto& [path, mount] : by_path) mounts.push_back(std::move(mount));
  return mounts;
}

View view_of(const MountPoint& mount) {
  if (mount.path == "/dev/shm") return View::fresh;
  for (const auto* folder : {"/proc", "/sys", "/dev", "/run"}) {
    if (lies_in(mount.path, folder)) return View::shared;
  }
  return std::ranges::find(kKernels, mount.type) != kKernels.end() ? View::shared : View::layered;
}

}  // namespace fullwatt::tune
