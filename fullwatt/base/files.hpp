#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/base/error.hpp"
#include "fullwatt/base/reading.hpp"

namespace fullwatt::base {

struct FileInfo {
  enum class Kind { file, directory, link, device, other };
  Kind kind = Kind::file;
  std::uint32_t mode = 0644;  ///< permission bits only
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint64_t size = 0;
  std::uint32_t major = 0;  ///< of a device node
  std::uint32_t minor = 0;
};

/// The file system as the probes see it: the real one, or a recorded tree.
class Files {
 public:
  /// sysfs and procfs files are small; whoever needs more says so.
  static constexpr std::size_t kReadLimit = 256UL * 1024;

  virtual ~Files() = default;
  virtual Reading<std::string> read(const std::string& path, std::size_t limit = kReadLimit) = 0;
  virtual Reading<std::string> read_link(const std::string& path) = 0;
  /// The lines of a long text file that hold `part`; only these are read into memory, and only these are recorded.
  virtual Reading<std::string> grep(const std::string& path, std::string_view part) = 0;
  /// Names in a directory that hold `part`, sorted, without "." and "..". Only these are recorded.
  virtual Reading<std::vector<std::string>> list(const std::string& path, std::string_view part) = 0;
  Reading<std::vector<std::string>> list(const std::string& path) { return list(path, {}); }
  /// Follows links, as stat(2) does.
  virtual Reading<FileInfo> info(const std::string& path) = 0;
  /// 0 when the file can be opened for reading and writing, else the errno of open(2).
  virtual int open_error(const std::string& path) = 0;

  bool exists(const std::string& path) { return info(path).has_value(); }
  /// The file's text without surrounding white space.
  Reading<std::string> read_line(const std::string& path);
};

/// The machine's own files.
class RealFiles final : public Files {
 public:
  Reading<std::string> read(const std::string& path, std::size_t limit) override;
  Reading<std::string> read_link(const std::string& path) override;
  Reading<std::string> grep(const std::string& path, std::string_view part) override;
  using Files::list;
  Reading<std::vector<std::string>> list(const std::string& path, std::string_view part) override;
  Reading<FileInfo> info(const std::string& path) override;
  int open_error(const std::string& path) override;
};

/// What is known of one recorded path. Several facts may hold at once: a link that is also listed as a folder.
struct TreeEntry {
  Reading<std::string> text;
  Reading<std::string> link;
  Reading<FileInfo> info;
  Reading<int> open_error;
};

/// A recorded file system: absolute path → entry. Folders exist by having something in them.
using Tree = std::map<std::string, TreeEntry>;

class TreeFiles final : public Files {
 public:
  /// `uid` and `groups` are those of the recorded user: they decide what an unrecorded open(2) answers.
  explicit TreeFiles(Tree tree, std::uint32_t uid = 1000, std::vector<std::uint32_t> groups = {});

  Reading<std::string> read(const std::string& path, std::size_t limit) override;
  Reading<std::string> read_link(const std::string& path) override;
  Reading<std::string> grep(const std::string& path, std::string_view part) override;
  using Files::list;
  Reading<std::vector<std::string>> list(const std::string& path, std::string_view part) override;
  Reading<FileInfo> info(const std::string& path) override;
  int open_error(const std::string& path) override;

 private:
  const TreeEntry* find(const std::string& path) const;
  bool has_children(const std::string& path) const;

  Tree tree_;
  std::uint32_t uid_;
  std::vector<std::uint32_t> groups_;
};

/// Passes everything through and remembers what was answered, so that it can be replayed. Safe for several threads.
class RecordingFiles final : public Files {
 public:
  explicit RecordingFiles(Files& source) : source_(source) {}

  Reading<std::string> read(const std::string& path, std::size_t limit) override;
  Reading<std::string> read_link(const std::string& path) override;
  Reading<std::string> grep(const std::string& path, std::string_view part) override;
  using Files::list;
  Reading<std::vector<std::string>> list(const std::string& path, std::string_view part) override;
  Reading<FileInfo> info(const std::string& path) override;
  int open_error(const std::string& path) override;

  Tree recorded() const;

 private:
  Files& source_;
  mutable std::mutex mutex_;
  Tree tree_;
};

/// Whoever reads the file, at whatever moment, finds all of `text` or what was there before.
Result<void> write_whole(const std::string& path, std::string_view text);

/// "a/b" and "/a//b/../c" as an absolute path without ".", ".." and doubled slashes.
std::string normal_path(std::string_view path);

}  // namespace fullwatt::base
