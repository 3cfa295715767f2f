#include "fullwatt/tune/sandbox.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fullwatt/tune/mounts.hpp"

namespace fullwatt::tune {
namespace {

namespace fs = std::filesystem;
using base::Error;
using base::Result;
constexpr std::size_t kMostAttached = 2000;

Result<void> failed(const std::string& what) {
  return base::fail(Error::Kind::refused, what + ": " + std::strerror(errno),
                    "Trials need overlay file systems in a namespace, which this machine or container does not offer.");
}

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool spew(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  return static_cast<bool>(file.flush());
}

/// A mount namespace of our own. Without the right to it a user namespace gives it, in which we stay who we are.
Result<void> leave_namespaces(bool& in_user_namespace) {
  const auto user = ::geteuid();
  const auto group = ::getegid();
  in_user_namespace = ::unshare(CLONE_NEWNS) != 0;
  if (in_user_namespace) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return failed("no user namespace");
    static_cast<void>(spew("/proc/self/setgroups", "deny"));
    if (!spew("/proc/self/uid_map", fmt::format("{} {} 1", user, user)) ||
        !spew("/proc/self/gid_map", fmt::format("{} {} 1", group, group)))
      return failed("no identity in the user namespace");
  }
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return failed("mounts stay shared");
  return {};
}

/// Commas and colons part the options of an overlay.
std::string escaped(const std::string& path) {
  std::string out;
  for (const char c : path) {
    if (c == '\\' || c == ',' || c == ':') out += '\\';
    out += c;
  }
  return out;
}

/// The flags that a mount has already: in a user namespace none of them may be dropped.
unsigned long flags_of(const std::string& path) {
  struct statvfs state{};
  if (::statvfs(path.c_str(), &state) != 0) return 0;
  unsigned long flags = 0;
  const std::pair<unsigned long, unsigned long> known[] = {{ST_NOSUID, MS_NOSUID},
                                                           {ST_NODEV, MS_NODEV},
                                                           {ST_NOEXEC, MS_NOEXEC},
                                                           {ST_NOATIME, MS_NOATIME},
                                                           {ST_RELATIME, MS_RELATIME}};
  for (const auto& [set, flag] : known) flags |= (state.f_flag & set) != 0 ? flag : 0;
  return flags;
}

/// Builds the view below the scratch folder, mount by mount: a layer over each, the kernel's own as they are, and what
/// no layer can lie over protected from writing.
///
/// In a user namespace a mount cannot be taken out of the tree that it came in: there the whole tree is shown first,
/// and layers lie over its folders that have no mounts below them.
class Builder {
 public:
  Builder(const SandboxOptions& options, bool in_user_namespace)
      : options_(options),
        user_(in_user_namespace),
        root_(options.scratch + "/root"),
        layers_(options.scratch + "/layers"),
        mounts_(parse_mounts(slurp("/proc/self/mountinfo"))) {}

  Result<void> build() {
    std::error_code error;
    fs::create_directories(root_, error);
    fs::create_directories(layers_, error);
    // Not on the disk: an upper layer may not lie inside the lower one.
    const auto size = fmt::format("size={},mode=700", options_.most_bytes);
    if (::mount("tmpfs", layers_.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, size.c_str()) != 0) return failed("no tmpfs");
    if (user_) {
      if (auto shown = bind("/", MS_REC); !shown) return shown;
    }
    for (const auto& mount : mounts_) {
      if (auto shown = show(mount); !shown) return shown;
    }
    return open_writable();
  }

  Result<void> move_in() const {
    const auto here = fs::current_path().string();
    if (::chroot(root_.c_str()) != 0) return failed("chroot");
    if (::chdir(here.c_str()) != 0) return failed("cannot go to " + here);
    return {};
  }

 private:
  std::string inside(const std::string& path) const { return path == "/" ? root_ : root_ + path; }

  bool has_mounts_below(const std::string& path) const {
    const auto prefix = path == "/" ? path : path + "/";
    return std::ranges::any_of(mounts_, [&](const auto& mount) {
      return mount.path.size() > prefix.size() && mount.path.starts_with(prefix);
    });
  }
  bool is_mount(const std::string& path) const {
    return std::ranges::find(mounts_, path, &MountPoint::path) != mounts_.end();
  }

  Result<void> show(const MountPoint& mount) {
    std::error_code error;
    if (!fs::exists(inside(mount.path), error)) return {};  // lies below something that hides it
    switch (view_of(mount)) {
      case View::shared:
        return user_ ? Result<void>{} : bind(mount.path, 0);
      case View::fresh:
        return empty(mount.path);
      case View::layered:
        break;
    }
    const bool is_folder = fs::is_directory(mount.path, error);
    if (is_folder && (user_ ? cover(mount.path) : overlay(mount.path))) return {};
    if (!user_) {
      if (auto bound = bind(mount.path, 0); !bound) return bound;
    }
    return protect(inside(mount.path));
  }

  Result<void> bind(const std::string& path, unsigned long flags) const {
    if (::mount(path.c_str(), inside(path).c_str(), nullptr, MS_BIND | flags, nullptr) != 0)
      return failed("cannot show " + path);
    return {};
  }

  Result<void> empty(const std::string& path) const {
    if (::mount("tmpfs", inside(path).c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0)
      return failed("no memory at " + path);
    return {};
  }

  /// A layer over a folder, or over those in it where mounts lie below; whether nothing of it is left to protect.
  bool cover(const std::string& folder) {
    if (!has_mounts_below(folder)) return overlay(folder);
    const bool rebuilt = folder != "/" && rebuild(folder);
    for (const auto& path : names_in(folder)) {
      std::error_code error;
      if (fs::is_directory(path, error) && !fs::is_symlink(path, error) && !is_mount(path)) cover(path);
    }
    return rebuilt;
  }

  /// A new folder in the place of one, with everything of the old one attached: in it files can be made. Few folders
  /// have mounts below them, and these hold little else; others are left as they are, protected.
  bool rebuild(const std::string& folder) {
    const auto names = names_in(folder);
    struct stat old{};
    if (names.size() > kMostAttached || ::stat(folder.c_str(), &old) != 0) return false;
    const auto mode = fmt::format("mode={:o}", old.st_mode & 07777U);
    if (::mount("tmpfs", inside(folder).c_str(), "tmpfs", MS_NOSUID | MS_NODEV, mode.c_str()) != 0) return false;
    for (const auto& path : names) attach(path);
    return true;
  }

  void attach(const std::string& path) const {
    std::error_code error;
    if (fs::is_symlink(path, error)) {
      fs::copy_symlink(path, inside(path), error);
      return;
    }
    if (fs::is_directory(path, error)) {
      fs::create_directory(inside(path), error);
    } else {
      std::ofstream(inside(path)).flush();
    }
    if (::mount(path.c_str(), inside(path).c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0 || is_mount(path)) return;
    // What cannot be protected is better not there.
    if (!protect(inside(path))) ::umount2(inside(path).c_str(), MNT_DETACH);
  }

  static std::vector<std::string> names_in(const std::string& folder) {
    std::error_code error;
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder, fs::directory_options::skip_permission_denied, error))
      names.push_back(entry.path().string());
    return names;
  }

  bool overlay(const std::string& folder) {
    const auto layer = fmt::format("{}/{}", layers_, ++count_);
    std::error_code error;
    fs::create_directories(layer + "/upper", error);
    fs::create_directories(layer + "/work", error);
    const auto data = fmt::format("lowerdir={},upperdir={}/upper,workdir={}/work{}", escaped(folder), escaped(layer),
                                  escaped(layer), user_ ? ",userxattr" : "");
    return ::mount("overlay", inside(folder).c_str(), "overlay", 0, data.c_str()) == 0;
  }

  static Result<void> protect(const std::string& there) {
    if (::mount(nullptr, there.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | flags_of(there), nullptr) != 0)
      return failed("cannot protect " + there);
    return {};
  }

  Result<void> open_writable() const {
    for (const auto& path : options_.writable) {
      if (auto bound = bind(path, MS_REC); !bound) return bound;
    }
    return {};
  }

  const SandboxOptions& options_;
  bool user_;
  std::string root_;
  std::string layers_;
  std::vector<MountPoint> mounts_;
  int count_ = 0;
};

}  // namespace

Result<void> enter_sandbox(const SandboxOptions& options) {
  bool in_user_namespace = false;
  if (auto left = leave_namespaces(in_user_namespace); !left) return left;
  Builder builder(options, in_user_namespace);
  if (auto built = builder.build(); !built) return built;
  return builder.move_in();
}

}  // namespace fullwatt::tune
