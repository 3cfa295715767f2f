#include "fullwatt/tune/fence.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fullwatt::tune {
namespace {

// The kernel's interface (Documentation/userspace-api/landlock.rst). Its header on the machine that builds may be older
// than the kernel of the machine that runs.
constexpr long kCreateRuleset = 444;
constexpr long kAddRule = 445;
constexpr long kRestrictSelf = 446;
constexpr unsigned kAskVersion = 1;
constexpr unsigned kPathBeneath = 1;
constexpr std::uint64_t kWriteFile = 1U << 1U;
constexpr std::uint64_t kRemoveFolder = 1U << 4U;
constexpr std::uint64_t kRemoveFile = 1U << 5U;
constexpr std::uint64_t kMakeAnything = 0x7FU << 6U;  ///< device, folder, file, socket, pipe, block device, link
constexpr std::uint64_t kMoveAcross = 1U << 13U;      ///< version 2
constexpr std::uint64_t kTruncate = 1U << 14U;        ///< version 3
constexpr std::uint64_t kOfFiles = kWriteFile | kTruncate;

struct Ruleset {
  std::uint64_t handled = 0;
};
struct __attribute__((packed)) PathRule {
  std::uint64_t allowed = 0;
  std::int32_t folder = -1;
};

base::Result<void> failed(const std::string& what) {
  return base::fail(base::Error::Kind::refused, what + ": " + std::strerror(errno),
                    "Trials need overlay file systems in a namespace, or Landlock (Linux 5.13); this machine or "
                    "container offers neither.");
}

/// What is forbidden, as far as this kernel knows it; 0 where it knows none of it.
std::uint64_t writing_of_this_kernel() {
  const auto version = ::syscall(kCreateRuleset, nullptr, 0, kAskVersion);
  if (version < 1) return 0;
  std::uint64_t rights = kWriteFile | kRemoveFolder | kRemoveFile | kMakeAnything;
  if (version >= 2) rights |= kMoveAcross;
  if (version >= 3) rights |= kTruncate;
  return rights;
}

bool allow(int ruleset, const std::string& path, std::uint64_t rights) {
  PathRule rule;
  rule.folder = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  if (rule.folder < 0) return false;
  rule.allowed = rights;
  auto added = ::syscall(kAddRule, ruleset, kPathBeneath, &rule, 0);
  if (added != 0 && errno == EINVAL) {  // no folder
    rule.allowed = rights & kOfFiles;
    added = ::syscall(kAddRule, ruleset, kPathBeneath, &rule, 0);
  }
  ::close(rule.folder);
  return added == 0;
}

}  // namespace

base::Result<void> raise_fence(const std::vector<std::string>& writable) {
  const Ruleset wanted{writing_of_this_kernel()};
  if (wanted.handled == 0) return failed("no Landlock");
  const auto ruleset = static_cast<int>(::syscall(kCreateRuleset, &wanted, sizeof(wanted), 0));
  if (ruleset < 0) return failed("no Landlock");
  for (const auto& path : writable) {
    if (!allow(ruleset, path, wanted.handled)) return failed("cannot leave " + path + " open");
  }
  // Devices hold nothing; /proc takes what a process says about itself.
  for (const auto* path : {"/dev", "/proc"}) static_cast<void>(allow(ruleset, path, wanted.handled));
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::syscall(kRestrictSelf, ruleset, 0) != 0)
    return failed("Landlock is not to be had");
  ::close(ruleset);
  return {};
}

}  // namespace fullwatt::tune
