#include "fullwatt/tune/lookout.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fullwatt::tune {
namespace {

namespace fs = std::filesystem;

#ifdef __aarch64__
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#endif
constexpr unsigned kWriting = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
constexpr std::size_t kLongestPath = 4096;
constexpr std::size_t kNoticeBytes = 512;  ///< a kernel newer than our header may have longer ones
constexpr std::size_t kMostRefused = 8;

enum class Kind { open, make, remove, change, move };

/// A system call that changes files, and where its arguments stand; -1 for what it has not.
struct Call {
  long number = 0;
  Kind kind = Kind::open;
  int path = 0;
  int folder = -1;
  int flags = -1;
  int target = -1;  ///< of a move
  int target_folder = -1;
};

constexpr auto kCalls = std::to_array<Call>({
    {.number = SYS_openat, .path = 1, .folder = 0, .flags = 2},
    {.number = SYS_mkdirat, .kind = Kind::make, .path = 1, .folder = 0},
    {.number = SYS_mknodat, .kind = Kind::make, .path = 1, .folder = 0},
    {.number = SYS_linkat, .kind = Kind::make, .path = 3, .folder = 2},
    {.number = SYS_symlinkat, .kind = Kind::make, .path = 2, .folder = 1},
    {.number = SYS_unlinkat, .kind = Kind::remove, .path = 1, .folder = 0},
    {.number = SYS_truncate, .kind = Kind::change},
    {.number = SYS_fchmodat, .kind = Kind::change, .path = 1, .folder = 0},
    {.number = SYS_fchownat, .kind = Kind::change, .path = 1, .folder = 0},
    {.number = SYS_utimensat, .kind = Kind::change, .path = 1, .folder = 0},
    {.number = SYS_setxattr, .kind = Kind::change},
    {.number = SYS_renameat2, .kind = Kind::move, .path = 1, .folder = 0, .target = 3, .target_folder = 2},
#ifdef SYS_renameat
    {.number = SYS_renameat, .kind = Kind::move, .path = 1, .folder = 0, .target = 3, .target_folder = 2},
#endif
#ifdef SYS_open  // x86 has the calls without a folder, too
    {.number = SYS_open, .flags = 1},
    {.number = SYS_creat},
    {.number = SYS_mkdir, .kind = Kind::make},
    {.number = SYS_mknod, .kind = Kind::make},
    {.number = SYS_link, .kind = Kind::make, .path = 1},
    {.number = SYS_symlink, .kind = Kind::make, .path = 1},
    {.number = SYS_unlink, .kind = Kind::remove},
    {.number = SYS_rmdir, .kind = Kind::remove},
    {.number = SYS_chmod, .kind = Kind::change},
    {.number = SYS_chown, .kind = Kind::change},
    {.number = SYS_lchown, .kind = Kind::change},
    {.number = SYS_rename, .kind = Kind::move, .target = 1},
#endif
});

/// What a process asks for, that would be done without a fence.
struct Attempt {
  std::vector<std::string> paths;
  bool may_be_for_reading = false;
};

/// Notices of these calls; of opening only where it is for writing, so that reading costs nothing.
std::vector<sock_filter> filter() {
  const auto argument = [](int place) {
    return static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 8 * static_cast<std::size_t>(place));
  };
  std::vector<sock_filter> lines{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
  };
  for (const auto& call : kCalls) {
    const auto number = static_cast<std::uint32_t>(call.number);
    if (call.flags < 0) {
      lines.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    } else {
      lines.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4));
      lines.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(call.flags)));
      lines.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kWriting, 1, 0));
      lines.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    }
    lines.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
  }
  lines.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return lines;
}

/// Whether the user may: the fence has no say in access().
bool may_write(const fs::path& path) {
  return ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
}

bool lies_in(const std::string& path, const std::vector<std::string>& folders) {
  return std::ranges::any_of(folders,
                             [&](const auto& folder) { return path == folder || path.starts_with(folder + "/"); });
}

/// Links there mean another file to each process, and the fence decides.
bool is_kernels(const std::string& path) {
  return lies_in(path, {"/proc", "/dev"});
}

/// A text in another process's memory.
std::string text_at(int process, std::uint64_t address) {
  const int memory = ::open(fmt::format("/proc/{}/mem", process).c_str(), O_RDONLY | O_CLOEXEC);
  if (memory < 0) return {};
  std::string bytes(kLongestPath, '\0');
  const auto count = ::pread(memory, bytes.data(), bytes.size(), static_cast<off_t>(address));
  ::close(memory);
  bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  const auto end = bytes.find('\0');
  return end != std::string::npos ? bytes.substr(0, end) : std::string();
}

/// Its arguments as paths of ours, without symbolic links on the way.
class Arguments {
 public:
  explicit Arguments(const seccomp_notif& notice)
      : process_(static_cast<int>(notice.pid)), values_(std::begin(notice.data.args), std::end(notice.data.args)) {}

  unsigned flags(int place) const { return static_cast<unsigned>(values_[static_cast<std::size_t>(place)]); }

  std::optional<fs::path> path(int place, int folder_place) const {
    fs::path path(text_at(process_, values_[static_cast<std::size_t>(place)]));
    if (path.empty()) return std::nullopt;
    const int folder = folder_place < 0 ? AT_FDCWD : static_cast<int>(flags(folder_place));
    std::error_code error;
    if (path.is_relative()) {
      const auto where = folder == AT_FDCWD ? std::string("cwd") : fmt::format("fd/{}", folder);
      path = fs::read_symlink(fmt::format("/proc/{}/{}", process_, where), error) / path;
    }
    path = path.lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    return fs::weakly_canonical(path.parent_path(), error) / path.filename();
  }

 private:
  int process_;
  std::vector<std::uint64_t> values_;
};

std::optional<Attempt> opening(fs::path path, unsigned flags) {
  std::error_code error;
  if ((flags & O_TMPFILE) == O_TMPFILE) return std::nullopt;  // leaves nothing behind
  if (fs::is_symlink(path, error)) path = fs::weakly_canonical(path, error);
  if (!fs::exists(path, error)) {
    if ((flags & O_CREAT) == 0 || !may_write(path.parent_path())) return std::nullopt;
    return Attempt{{path.string()}};
  }
  const bool fails = (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL) || !may_write(path);
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
  if (fails || !writes || !fs::is_regular_file(path, error)) return std::nullopt;
  return Attempt{{path.string()}, (flags & O_ACCMODE) == O_RDWR && (flags & O_TRUNC) == 0};
}

std::optional<Attempt> attempt_of(const seccomp_notif& notice) {
  const auto* call = std::ranges::find(kCalls, notice.data.nr, &Call::number);
  if (call == kCalls.end()) return std::nullopt;
  const Arguments arguments(notice);
  const auto path = arguments.path(call->path, call->folder);
  if (!path || is_kernels(path->string())) return std::nullopt;
  std::error_code error;
  const bool exists = fs::exists(fs::symlink_status(*path, error));
  const auto if_done = [&](bool is_done) { return is_done ? std::optional(Attempt{{path->string()}}) : std::nullopt; };
  switch (call->kind) {
    case Kind::open:
      return opening(*path, call->flags < 0 ? O_CREAT | O_WRONLY | O_TRUNC : arguments.flags(call->flags));
    case Kind::make:
      return if_done(!exists && may_write(path->parent_path()));
    case Kind::remove:
      return if_done(exists && may_write(path->parent_path()));
    case Kind::change:
      return if_done(exists && may_write(*path));
    case Kind::move: {
      const auto target = arguments.path(call->target, call->target_folder);
      if (!target || !exists || !may_write(path->parent_path()) || !may_write(target->parent_path()))
        return std::nullopt;
      return Attempt{{path->string(), target->string()}};
    }
  }
  return std::nullopt;
}

}  // namespace

Lookout::Lookout(std::vector<std::string> open, std::vector<std::string> caches)
    : open_(std::move(open)), caches_(std::move(caches)) {
  std::error_code error;
  for (auto& folder : open_) folder = fs::weakly_canonical(folder, error).string();
}

Lookout::~Lookout() {
  stop();
}

void Lookout::stop() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

int Lookout::watch_me() {
  auto lines = filter();
  const sock_fprog program{static_cast<unsigned short>(lines.size()), lines.data()};
  // Without the second flag older kernels would slow the program down as if it were hostile.
  constexpr auto kFlags = SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return static_cast<int>(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, kFlags, &program));
}

bool Lookout::answer() {
  alignas(seccomp_notif) std::array<std::byte, kNoticeBytes> bytes{};
  auto& notice = *reinterpret_cast<seccomp_notif*>(bytes.data());
  if (::ioctl(descriptor_, SECCOMP_IOCTL_NOTIF_RECV, &notice) != 0) return true;  // it has ended meanwhile
  const auto attempt = attempt_of(notice);
  if (::ioctl(descriptor_, SECCOMP_IOCTL_NOTIF_ID_VALID, &notice.id) != 0) return true;
  if (attempt) {
    for (const auto& path : attempt->paths) {
      if (lies_in(path, open_)) continue;
      if (!attempt->may_be_for_reading && !lies_in(path, caches_)) {
        forbidden_ = path;
        return false;
      }
      if (refused_.size() < kMostRefused) refused_.insert(path);
    }
  }
  alignas(seccomp_notif_resp) std::array<std::byte, kNoticeBytes> answered{};
  auto& response = *reinterpret_cast<seccomp_notif_resp*>(answered.data());
  response.id = notice.id;
  response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  ::ioctl(descriptor_, SECCOMP_IOCTL_NOTIF_SEND, &response);
  return true;
}

}  // namespace fullwatt::tune
