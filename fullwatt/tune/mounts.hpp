#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fullwatt::tune {

/// A place where a file system is mounted, as /proc/self/mountinfo has it.
struct MountPoint {
  std::string path;
  std::string type;  ///< ext4, tmpfs, proc …

  bool operator==(const MountPoint&) const = default;
};

/// What lies where, each path once (the mount on top), parents before their children. Broken lines are left out.
std::vector<MountPoint> parse_mounts(std::string_view mountinfo);

/// How a mount appears inside a sandbox.
enum class View {
  layered,  ///< everything is there, and what is written stays in a layer of its own
  shared,   ///< the very same: the kernel's own interfaces
  fresh,    ///< empty, and gone afterwards
};
View view_of(const MountPoint& mount);

}  // namespace fullwatt::tune
