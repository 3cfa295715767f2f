#include <filesystem>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "fullwatt/base/archive.hpp"
#include "fullwatt/base/files.hpp"
#include "fullwatt/base/process.hpp"

namespace fullwatt::base {
namespace {

using tests::read_all;
using tests::TempFolder;

ChildResult tar(std::vector<std::string> arguments) {
  ChildOptions options;
  options.argv = std::move(arguments);
  options.environment = {{"PATH", "/usr/bin:/bin"}};
  options.limit = std::chrono::milliseconds(60'000);
  return run_child(options).value();
}

TEST(ArchiveTest, OnlyTheOwnerMayReadIt) {
  const TempFolder folder;
  const auto previous = ::umask(0);
  const auto written = write_archive(folder / "b.tar.gz", {{"a.txt", "hello"}});
  ::umask(previous);
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(RealFiles().info(folder / "b.tar.gz")->mode, 0600U);
}

TEST(ArchiveTest, TarListsAndUnpacksEveryFile) {
  const TempFolder folder;
  const std::string block(512, 'x');
  const std::string binary("\0\1\xff\n", 4);
  ASSERT_TRUE(write_archive(
      folder / "b.tar.gz",
      {{"bundle/a.txt", "hello"}, {"bundle/empty", ""}, {"bundle/block", block}, {"bundle/bin", binary}}));
  const auto listed = tar({"tar", "tzf", folder / "b.tar.gz"});
  ASSERT_TRUE(listed.ok()) << listed.err;
  EXPECT_EQ(listed.out, "bundle/a.txt\nbundle/empty\nbundle/block\nbundle/bin\n");
  const auto unpacked = tar({"tar", "xzf", folder / "b.tar.gz", "-C", folder.path()});
  ASSERT_TRUE(unpacked.ok()) << unpacked.err;
  EXPECT_EQ(read_all(folder / "bundle/a.txt"), "hello");
  EXPECT_EQ(read_all(folder / "bundle/empty"), "");
  EXPECT_EQ(read_all(folder / "bundle/block"), block);
  EXPECT_EQ(read_all(folder / "bundle/bin"), binary);
}

TEST(ArchiveTest, AnExistingFileIsNeverTouched) {
  const TempFolder folder;
  const auto path = folder.write("precious", "keep me");
  const auto written = write_archive(path, {{"a", "b"}});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().kind, Error::Kind::bad_input);
  EXPECT_FALSE(written.error().remedy.empty());
  EXPECT_EQ(read_all(path), "keep me");
}

TEST(ArchiveTest, ALinkIsNeverFollowed) {
  const TempFolder folder;
  const auto target = folder.write("precious", "keep me");
  std::filesystem::create_symlink(target, folder / "link.tar.gz");
  std::filesystem::create_symlink(folder / "nothing", folder / "dangling.tar.gz");
  EXPECT_FALSE(write_archive(folder / "link.tar.gz", {{"a", "b"}}));
  EXPECT_FALSE(write_archive(folder / "dangling.tar.gz", {{"a", "b"}}));
  EXPECT_EQ(read_all(target), "keep me");
  EXPECT_FALSE(std::filesystem::exists(folder / "nothing"));
}

TEST(ArchiveTest, AFolderThatIsMissingIsAClearError) {
  const TempFolder folder;
  const auto written = write_archive(folder / "none/b.tar.gz", {});
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("none/b.tar.gz"), std::string::npos);
}

}  // namespace
}  // namespace fullwatt::base
