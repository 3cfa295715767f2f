#include <gtest/gtest.h>

#include "fullwatt/tune/mounts.hpp"

namespace fullwatt::tune {
namespace {

constexpr const char* kMounts = R"(22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw shared:2 - proc proc rw
24 22 0:5 / /dev rw shared:3 - devtmpfs udev rw
25 24 0:22 / /dev/shm rw - tmpfs tmpfs rw
26 22 8:2 / /home/my\040data rw shared:4 master:2 - xfs /dev/sda2 rw
27 22 0:30 / /mnt rw - nfs4 server:/x rw
28 22 0:31 / /mnt rw - ext4 /dev/sdb rw
broken line
29 22 0:40 / relative rw - ext4 x rw
)";

TEST(TuneMountsTest, MountsAreReadWithTheUppermostOfEachPath) {
  const std::vector<MountPoint> expected{{"/", "ext4"},         {"/dev", "devtmpfs"},
                                         {"/dev/shm", "tmpfs"}, {"/home/my data", "xfs"},
                                         {"/mnt", "ext4"},      {"/proc", "proc"}};
  EXPECT_EQ(parse_mounts(kMounts), expected);
  EXPECT_TRUE(parse_mounts("").empty());
}

TEST(TuneMountsTest, TheKernelsOwnDoorsStayOpenAndAllElseIsLayered) {
  EXPECT_EQ(view_of({"/", "ext4"}), View::layered);
  EXPECT_EQ(view_of({"/home/me", "fuse.sshfs"}), View::layered);
  EXPECT_EQ(view_of({"/tmp", "tmpfs"}), View::layered);
  EXPECT_EQ(view_of({"/device", "ext4"}), View::layered);
  EXPECT_EQ(view_of({"/proc/driver/nvidia", "tmpfs"}), View::shared);
  EXPECT_EQ(view_of({"/dev/pts", "devpts"}), View::shared);
  EXPECT_EQ(view_of({"/snap/cgroup", "cgroup2"}), View::shared);
  EXPECT_EQ(view_of({"/dev/shm", "tmpfs"}), View::fresh);
}

}  // namespace
}  // namespace fullwatt::tune
