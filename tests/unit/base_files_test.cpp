#include <cerrno>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/support/temp_folder.hpp"
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fullwatt/base/files.hpp"

namespace fullwatt::base {
namespace {

using tests::TempFolder;
using Names = std::vector<std::string>;

TreeEntry text_entry(const std::string& text) {
  TreeEntry entry;
  entry.text = text;
  return entry;
}

TreeEntry link_entry(const std::string& target) {
  TreeEntry entry;
  entry.link = target;
  return entry;
}

TreeEntry node_entry(std::uint32_t mode, std::uint32_t uid, std::uint32_t gid) {
  TreeEntry entry;
  entry.info = FileInfo{.kind = FileInfo::Kind::device, .mode = mode, .uid = uid, .gid = gid, .major = 195, .minor = 0};
  return entry;
}

TEST(NormalPathTest, DotsAndDoubledSlashesGo) {
  EXPECT_EQ(normal_path("/a//b/./../c/"), "/a/c");
  EXPECT_EQ(normal_path("a/b"), "/a/b");
  EXPECT_EQ(normal_path("/.."), "/");
  EXPECT_EQ(normal_path("/../../etc"), "/etc");
  EXPECT_EQ(normal_path(""), "/");
}

TEST(RealFilesTest, AFileIsReadUpToTheLimit) {
  const TempFolder folder;
  const auto path = folder.write("text", " 0x10de\n");
  RealFiles files;
  EXPECT_EQ(files.read(path, 100).value(), " 0x10de\n");
  EXPECT_EQ(files.read(path, 3).value(), " 0x");
  EXPECT_EQ(files.read_line(path).value(), "0x10de");
}

TEST(RealFilesTest, WhatIsMissingIsNotThere) {
  const TempFolder folder;
  RealFiles files;
  EXPECT_EQ(files.read(folder / "none", 10).error().reason, Absent::not_there);
  EXPECT_EQ(files.read_link(folder / "none").error().reason, Absent::not_there);
  EXPECT_EQ(files.list(folder / "none").error().reason, Absent::not_there);
  EXPECT_EQ(files.info(folder / "none").error().reason, Absent::not_there);
  EXPECT_EQ(files.grep(folder / "none", "x").error().reason, Absent::not_there);
  EXPECT_EQ(files.open_error(folder / "none"), ENOENT);
  EXPECT_FALSE(files.exists(folder / "none"));
}

TEST(RealFilesTest, AFolderIsNoText) {
  const TempFolder folder;
  RealFiles files;
  EXPECT_EQ(files.read(folder.path(), 10).error().code, EISDIR);
}

TEST(RealFilesTest, NamesAreListedSortedWithoutTheDots) {
  const TempFolder folder;
  folder.write("b", "");
  folder.write("a", "");
  folder.write("c/deep", "");
  RealFiles files;
  EXPECT_EQ(files.list(folder.path()).value(), (Names{"a", "b", "c"}));
}

TEST(RealFilesTest, InfoFollowsLinksAndReadLinkDoesNot) {
  const TempFolder folder;
  folder.write("target", "12345");
  std::filesystem::create_symlink("target", folder / "link");
  RealFiles files;
  EXPECT_EQ(files.read_link(folder / "link").value(), "target");
  EXPECT_EQ(files.info(folder / "link").value().size, 5U);
  EXPECT_EQ(files.info(folder.path()).value().kind, FileInfo::Kind::directory);
  EXPECT_EQ(files.read_link(folder / "target").error().code, EINVAL);
}

TEST(RealFilesTest, InfoTellsModeAndOwner) {
  const TempFolder folder;
  const auto path = folder.write("file", "");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  RealFiles files;
  const auto info = files.info(path);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->mode, 0640U);
  EXPECT_EQ(info->uid, ::geteuid());
}

TEST(RealFilesTest, ADeviceNodeShowsItsNumbers) {
  RealFiles files;
  const auto info = files.info("/dev/null");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->kind, FileInfo::Kind::device);
  EXPECT_EQ(info->major, 1U);
  EXPECT_EQ(info->minor, 3U);
  EXPECT_EQ(files.open_error("/dev/null"), 0);
}

TEST(RealFilesTest, GrepKeepsOnlyTheLinesThatHoldTheText) {
  const TempFolder folder;
  const auto path = folder.write("maps", "a libcuda.so.1\nb libm.so\nc libcuda.so.1\n");
  RealFiles files;
  EXPECT_EQ(files.grep(path, "libcuda").value(), "a libcuda.so.1\nc libcuda.so.1\n");
  EXPECT_EQ(files.grep(path, "libtorch").value(), "");
}

TEST(RealFilesTest, AFifoInAnUnexpectedPlaceDoesNotHoldTheReader) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  RealFiles files;
  EXPECT_EQ(files.read(folder / "fifo", 10).value(), "");
}

TEST(TreeFilesTest, TextIsReadUpToTheLimit) {
  TreeFiles files({{"/proc/cmdline", text_entry("quiet splash\n")}});
  EXPECT_EQ(files.read("/proc/cmdline", 100).value(), "quiet splash\n");
  EXPECT_EQ(files.read("/proc/cmdline", 5).value(), "quiet");
  EXPECT_EQ(files.read("/proc//./cmdline", 5).value(), "quiet");
  EXPECT_EQ(files.grep("/proc/cmdline", "splash").value(), "quiet splash\n");
}

TEST(TreeFilesTest, FoldersExistByWhatIsInThem) {
  TreeFiles files({{"/a/b/c", text_entry("x")}, {"/a/bc", text_entry("y")}});
  EXPECT_EQ(files.list("/a").value(), (Names{"b", "bc"}));
  EXPECT_EQ(files.list("/a/b").value(), Names{"c"});
  EXPECT_EQ(files.list("/").value(), Names{"a"});
  EXPECT_EQ(files.info("/a/b").value().kind, FileInfo::Kind::directory);
  EXPECT_EQ(files.info("/").value().kind, FileInfo::Kind::directory);
  EXPECT_EQ(files.read("/a/b", 10).error().code, EISDIR);
  EXPECT_EQ(files.list("/a/b/c").error().reason, Absent::not_there);
}

TEST(TreeFilesTest, WhatWasNotRecordedIsNotThere) {
  TreeFiles files({{"/a", text_entry("x")}});
  EXPECT_EQ(files.read("/b", 10).error().reason, Absent::not_there);
  EXPECT_EQ(files.list("/b").error().reason, Absent::not_there);
  EXPECT_EQ(files.read_link("/b").error().code, ENOENT);
  EXPECT_EQ(files.read_link("/a").error().code, EINVAL);
  EXPECT_EQ(files.open_error("/b"), ENOENT);
}

TEST(TreeFilesTest, AnEmptyTreeHasNothingButNeverFails) {
  TreeFiles files({});
  EXPECT_FALSE(files.exists("/"));
  EXPECT_FALSE(files.list("/"));
}

TEST(TreeFilesTest, ALinkMayAlsoHaveChildren) {
  TreeFiles files({{"/sys/device", link_entry("../real")}, {"/sys/device/vendor", text_entry("0x10de")}});
  EXPECT_EQ(files.read_link("/sys/device").value(), "../real");
  EXPECT_EQ(files.list("/sys/device").value(), Names{"vendor"});
  EXPECT_EQ(files.info("/sys/device").value().kind, FileInfo::Kind::directory);
}

TEST(TreeFilesTest, AFileKnownOnlyByItsSizeReadsAsEmpty) {
  TreeEntry entry;
  entry.info = FileInfo{.size = 1000};
  TreeFiles files({{"/usr/bin/gcc", entry}});
  EXPECT_EQ(files.read("/usr/bin/gcc", 10).value(), "");
  EXPECT_EQ(files.info("/usr/bin/gcc").value().size, 1000U);
}

TEST(TreeFilesTest, ARecordedRefusalKeepsItsReason) {
  TreeEntry entry;
  entry.text = absent_from_errno(EACCES);
  entry.info = absent_from_errno(EACCES);
  TreeFiles files({{"/root/x", entry}});
  EXPECT_EQ(files.read("/root/x", 10).error().reason, Absent::no_permission);
  EXPECT_EQ(files.info("/root/x").error().code, EACCES);
  EXPECT_EQ(files.open_error("/root/x"), EACCES);
}

TEST(TreeFilesTest, WhatIsRecordedAsMissingIsNotListed) {
  TreeEntry missing;
  missing.info = absent_from_errno(ENOENT);
  TreeFiles files({{"/d/there", text_entry("")}, {"/d/missing", missing}});
  EXPECT_EQ(files.list("/d").value(), Names{"there"});
}

struct AccessCase {
  const char* name;
  std::uint32_t mode;
  std::uint32_t uid;
  std::vector<std::uint32_t> groups;
  int expected;
};

TEST(TreeFilesTest, OpeningIsDecidedByModeOwnerAndGroup) {
  const std::vector<AccessCase> cases{
      {"everybody may", 0666, 1000, {}, 0},
      {"only root may", 0600, 1000, {}, EACCES},
      {"root always may", 0000, 0, {}, 0},
      {"member of the group", 0660, 1000, {4, 44}, 0},
      {"not a member", 0660, 1000, {4}, EACCES},
      {"reading alone is not enough", 0644, 1000, {}, EACCES},
      {"the owner's bits count for the owner", 0066, 500, {}, EACCES},
      {"the owner may", 0600, 500, {}, 0},
      {"the group's bits count for its members", 0606, 1000, {44}, EACCES},
  };
  for (const auto& given : cases) {
    TreeFiles files({{"/dev/nvidia0", node_entry(given.mode, 500, 44)}}, given.uid, given.groups);
    EXPECT_EQ(files.open_error("/dev/nvidia0"), given.expected) << given.name;
  }
}

TEST(TreeFilesTest, ARecordedAnswerOfOpenGoesBeforeTheMode) {
  auto entry = node_entry(0666, 0, 0);
  entry.open_error = EPERM;
  TreeFiles files({{"/dev/nvidia-uvm", entry}});
  EXPECT_EQ(files.open_error("/dev/nvidia-uvm"), EPERM);
}

/// Everything a probe may ask, as one text per path.
std::string answers(Files& files, const std::string& path) {
  const auto show = [](const Reading<std::string>& reading) {
    return reading ? "'" + *reading + "'" : std::string(to_string(reading.error().reason));
  };
  const auto names = files.list(path);
  std::string out = path + " list ";
  for (const auto& name : names.value_or(Names{})) out += name + ",";
  if (!names) out += to_string(names.error().reason);
  out += " read " + show(files.read(path, 1000)) + " link " + show(files.read_link(path));
  const auto info = files.info(path);
  out += " info " + (info ? std::to_string(static_cast<int>(info->kind)) + " " + std::to_string(info->size)
                          : std::string(to_string(info.error().reason)));
  return out + " open " + std::to_string(files.open_error(path)) + " grep " + show(files.grep(path, "e")) + "\n";
}

TEST(RecordingFilesTest, AReplayGivesTheAnswersOfTheMachine) {
  const TempFolder folder;
  folder.write("file", "one\ntwo\nthree\n");
  folder.write("sub/deeper", "x");
  std::filesystem::create_directory(folder / "empty");
  std::filesystem::create_symlink("file", folder / "link");
  RealFiles real;
  RecordingFiles recording(real);
  for (const std::string name : {"file", "sub/deeper", "link", "none"}) {
    const auto path = folder / name;
    const auto seen = answers(recording, path);
    EXPECT_EQ(seen, answers(real, path));
    TreeFiles replayed(recording.recorded());
    EXPECT_EQ(answers(replayed, path), seen);
  }
}

TEST(RecordingFilesTest, ListsAreReplayedWithTheirNames) {
  const TempFolder folder;
  folder.write("b", "");
  folder.write("a/x", "");
  std::filesystem::create_directory(folder / "empty");
  RealFiles real;
  RecordingFiles recording(real);
  ASSERT_TRUE(recording.list(folder.path()));
  ASSERT_TRUE(recording.list(folder / "empty"));
  TreeFiles replayed(recording.recorded());
  EXPECT_EQ(replayed.list(folder.path()).value(), (Names{"a", "b", "empty"}));
  EXPECT_EQ(replayed.list(folder / "empty").value(), Names{});
}

TEST(RecordingFilesTest, AShortReadDoesNotForgetALongerOne) {
  TreeFiles source({{"/config", text_entry("0123456789")}});
  RecordingFiles recording(source);
  ASSERT_TRUE(recording.read("/config", 10));
  ASSERT_TRUE(recording.read("/config", 4));
  TreeFiles replayed(recording.recorded());
  EXPECT_EQ(replayed.read("/config", 10).value(), "0123456789");
}

TEST(RecordingFilesTest, SeveralSearchesInOneFileReplayEach) {
  TreeFiles source({{"/maps", text_entry("x libcudart libtorch\ny libcudart\nz libtorch\nw libm\n")}});
  RecordingFiles recording(source);
  ASSERT_TRUE(recording.grep("/maps", "libcudart"));
  ASSERT_TRUE(recording.grep("/maps", "libtorch"));
  TreeFiles replayed(recording.recorded());
  EXPECT_EQ(replayed.grep("/maps", "libcudart").value(), "x libcudart libtorch\ny libcudart\n");
  EXPECT_EQ(replayed.grep("/maps", "libtorch").value(), "x libcudart libtorch\nz libtorch\n");
  EXPECT_EQ(replayed.grep("/maps", "libm").value(), "");
}

TEST(RecordingFilesTest, SeveralThreadsMayAskAtOnce) {
  Tree tree;
  for (int i = 0; i < 100; ++i) tree["/f" + std::to_string(i)] = text_entry(std::to_string(i));
  TreeFiles source(tree);
  RecordingFiles recording(source);
  const auto ask = [&] {
    for (int i = 0; i < 100; ++i) recording.read("/f" + std::to_string(i), 10);
  };
  std::thread one(ask);
  std::thread two(ask);
  one.join();
  two.join();
  EXPECT_EQ(recording.recorded().size(), 100U);
}

TEST(WriteWholeTest, TheOldTextStaysUntilTheNewOneIsThere) {
  const TempFolder folder;
  const auto path = folder.write("note.json", "old");
  const auto full = folder / "note.json.new";
  std::filesystem::create_directory(full);  // as good as a full disk
  const auto refused = write_whole(path, "new");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "cannot write " + path);
  EXPECT_EQ(RealFiles().read_line(path).value(), "old");
  std::filesystem::remove(full);
  EXPECT_TRUE(write_whole(path, "new"));
  EXPECT_EQ(RealFiles().read_line(path).value(), "new");
  EXPECT_FALSE(std::filesystem::exists(full));
}

}  // namespace
}  // namespace fullwatt::base
