#include "fullwatt/base/files.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <set>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::base {
namespace {

FileInfo from_stat(const struct stat& st) {
  FileInfo info;
  if (S_ISREG(st.st_mode)) {
    info.kind = FileInfo::Kind::file;
  } else if (S_ISDIR(st.st_mode)) {
    info.kind = FileInfo::Kind::directory;
  } else if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode)) {
    info.kind = FileInfo::Kind::device;
  } else {
    info.kind = FileInfo::Kind::other;
  }
  info.mode = st.st_mode & 07777U;
  info.uid = st.st_uid;
  info.gid = st.st_gid;
  info.size = static_cast<std::uint64_t>(std::max<off_t>(st.st_size, 0));
  info.major = major(st.st_rdev);
  info.minor = minor(st.st_rdev);
  return info;
}

/// Adds the lines that are not there yet: one line may answer several searches.
void add_new_lines(std::string& text, std::string_view more) {
  const std::string before = text;
  const auto known = lines(before);
  for (auto line : lines(more)) {
    if (std::ranges::find(known, line) != known.end()) continue;
    if (!text.empty() && !text.ends_with('\n')) text += '\n';
    text.append(line).append("\n");
  }
}

/// Names of the folders above a path, in order, without the root.
std::vector<std::string_view> components(std::string_view path) {
  std::vector<std::string_view> parts;
  for (auto part : split(path, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else {
      parts.push_back(part);
    }
  }
  return parts;
}

}  // namespace

std::string normal_path(std::string_view path) {
  std::string out;
  for (auto part : components(path)) {
    out += '/';
    out += part;
  }
  return out.empty() ? "/" : out;
}

Reading<std::string> Files::read_line(const std::string& path) {
  auto text = read(path, kReadLimit);
  if (text) *text = std::string(trim(*text));
  return text;
}

Reading<std::string> RealFiles::read(const std::string& path, std::size_t limit) {
  // O_NONBLOCK: a FIFO or a busy device in an unexpected place must not hold the doctor.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return absent_from_errno(errno);
  std::string text;
  char buffer[16384];
  while (text.size() < limit) {
    const auto got = ::read(fd, buffer, std::min(sizeof buffer, limit - text.size()));
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      const auto why = absent_from_errno(errno);
      ::close(fd);
      return why;
    }
    text.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(fd);
  return text;
}

Reading<std::string> RealFiles::read_link(const std::string& path) {
  char buffer[4096];
  const auto got = ::readlink(path.c_str(), buffer, sizeof buffer);
  if (got < 0) return absent_from_errno(errno);
  return std::string(buffer, static_cast<std::size_t>(got));
}

Reading<std::string> RealFiles::grep(const std::string& path, std::string_view part) {
  std::ifstream in(path);
  if (!in) return absent_from_errno(errno != 0 ? errno : ENOENT);
  std::string found;
  std::string line;
  while (found.size() < kReadLimit && std::getline(in, line)) {
    if (contains(line, part)) found += line + "\n";
  }
  return found;
}

Reading<std::vector<std::string>> RealFiles::list(const std::string& path, std::string_view part) {
  DIR* dir = ::opendir(path.c_str());
  if (dir == nullptr) return absent_from_errno(errno);
  std::vector<std::string> names;
  while (const auto* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != ".." && contains(name, part)) names.emplace_back(name);
  }
  ::closedir(dir);
  std::ranges::sort(names);
  return names;
}

Reading<FileInfo> RealFiles::info(const std::string& path) {
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0) return absent_from_errno(errno);
  return from_stat(st);
}

int RealFiles::open_error(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return errno;
  ::close(fd);
  return 0;
}

TreeFiles::TreeFiles(Tree tree, std::uint32_t uid, std::vector<std::uint32_t> groups)
    : tree_(std::move(tree)), uid_(uid), groups_(std::move(groups)) {}

const TreeEntry* TreeFiles::find(const std::string& path) const {
  const auto at = tree_.find(normal_path(path));
  return at == tree_.end() ? nullptr : &at->second;
}

bool TreeFiles::has_children(const std::string& path) const {
  const auto normal = normal_path(path);
  const auto prefix = normal == "/" ? normal : normal + "/";
  const auto at = tree_.lower_bound(prefix);
  return at != tree_.end() && at->first.starts_with(prefix);
}

Reading<std::string> TreeFiles::read(const std::string& path, std::size_t limit) {
  const auto* entry = find(path);
  if (entry == nullptr) return absent_from_errno(has_children(path) ? EISDIR : ENOENT);
  if (!entry->text) {
    // A file that is known to exist but whose content was not recorded reads as empty.
    if (entry->text.error().reason == Absent::not_asked && entry->info) return std::string{};
    if (entry->text.error().reason == Absent::not_asked) return absent_from_errno(ENOENT);
    return entry->text.error();
  }
  return entry->text->substr(0, limit);
}

Reading<std::string> TreeFiles::read_link(const std::string& path) {
  const auto* entry = find(path);
  if (entry == nullptr || (!entry->link && entry->link.error().reason == Absent::not_asked)) {
    return absent_from_errno(entry == nullptr && !has_children(path) ? ENOENT : EINVAL);
  }
  return entry->link;
}

Reading<std::string> TreeFiles::grep(const std::string& path, std::string_view part) {
  auto text = read(path, std::string::npos);
  if (!text) return text;
  std::string found;
  for (auto line : lines(*text)) {
    if (contains(line, part)) found.append(line).append("\n");
  }
  return found;
}

Reading<std::vector<std::string>> TreeFiles::list(const std::string& path, std::string_view part) {
  const auto normal = normal_path(path);
  const auto prefix = normal == "/" ? normal : normal + "/";
  std::set<std::string> names;
  for (auto at = tree_.lower_bound(prefix); at != tree_.end() && at->first.starts_with(prefix); ++at) {
    const auto rest = std::string_view(at->first).substr(prefix.size());
    const auto name = rest.substr(0, rest.find('/'));
    // What is recorded as missing is remembered only to answer "not there" in the same words.
    const bool missing = name.size() == rest.size() && !at->second.info && !at->second.text && !at->second.link &&
                         !at->second.open_error;
    if (!name.empty() && !missing && contains(name, part)) names.emplace(name);
  }
  if (!names.empty() || has_children(path)) return std::vector<std::string>(names.begin(), names.end());
  const auto* entry = find(path);
  if (entry != nullptr && entry->info && entry->info->kind == FileInfo::Kind::directory) {
    return std::vector<std::string>{};
  }
  if (entry != nullptr && !entry->info && entry->info.error().reason == Absent::no_permission)
    return entry->info.error();
  return absent_from_errno(ENOENT);
}

Reading<FileInfo> TreeFiles::info(const std::string& path) {
  const auto* entry = find(path);
  if (entry != nullptr && (entry->info || entry->info.error().reason != Absent::not_asked)) return entry->info;
  if (has_children(path)) return FileInfo{.kind = FileInfo::Kind::directory, .mode = 0755};
  if (entry == nullptr) return absent_from_errno(ENOENT);
  if (entry->text) return FileInfo{.size = entry->text->size()};
  if (entry->link) return FileInfo{};
  return absent_from_errno(ENOENT);
}

int TreeFiles::open_error(const std::string& path) {
  const auto* entry = find(path);
  if (entry != nullptr && entry->open_error) return *entry->open_error;
  const auto known = info(path);
  if (!known) return known.error().code != 0 ? known.error().code : ENOENT;
  if (uid_ == 0) return 0;
  const bool in_group = std::ranges::find(groups_, known->gid) != groups_.end();
  const auto shift = known->uid == uid_ ? 6U : in_group ? 3U : 0U;
  return ((known->mode >> shift) & 6U) == 6U ? 0 : EACCES;
}

Reading<std::string> RecordingFiles::read(const std::string& path, std::size_t limit) {
  auto answer = source_.read(path, limit);
  const std::scoped_lock lock(mutex_);
  auto& text = tree_[normal_path(path)].text;
  const bool knows_more = text && answer && text->starts_with(*answer);
  if (!knows_more) text = answer;
  return answer;
}

Reading<std::string> RecordingFiles::read_link(const std::string& path) {
  auto answer = source_.read_link(path);
  const std::scoped_lock lock(mutex_);
  tree_[normal_path(path)].link = answer;
  return answer;
}

Reading<std::string> RecordingFiles::grep(const std::string& path, std::string_view part) {
  auto answer = source_.grep(path, part);
  const std::scoped_lock lock(mutex_);
  auto& text = tree_[normal_path(path)].text;
  if (!text) {
    text = answer;
  } else if (answer) {
    add_new_lines(*text, *answer);
  }
  return answer;
}

Reading<std::vector<std::string>> RecordingFiles::list(const std::string& path, std::string_view part) {
  auto names = source_.list(path, part);
  const std::scoped_lock lock(mutex_);
  if (!names) {
    tree_[normal_path(path)].info = names.error();
    return names;
  }
  tree_[normal_path(path)].info = FileInfo{.kind = FileInfo::Kind::directory, .mode = 0755};
  for (const auto& name : *names) {
    auto& entry = tree_[normal_path(path + "/" + name)];
    if (!entry.info && entry.info.error().reason == Absent::not_asked) entry.info = FileInfo{};
  }
  return names;
}

Reading<FileInfo> RecordingFiles::info(const std::string& path) {
  auto answer = source_.info(path);
  const std::scoped_lock lock(mutex_);
  tree_[normal_path(path)].info = answer;
  return answer;
}

int RecordingFiles::open_error(const std::string& path) {
  const int answer = source_.open_error(path);
  const std::scoped_lock lock(mutex_);
  tree_[normal_path(path)].open_error = answer;
  return answer;
}

Tree RecordingFiles::recorded() const {
  const std::scoped_lock lock(mutex_);
  return tree_;
}

Result<void> write_whole(const std::string& path, std::string_view text) {
  const auto fresh = path + ".new";
  std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file && std::rename(fresh.c_str(), path.c_str()) == 0) return {};
  std::remove(fresh.c_str());
  return fail(Error::Kind::unavailable, "cannot write " + path);
}

}  // namespace fullwatt::base
