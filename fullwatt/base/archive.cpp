#include "fullwatt/base/archive.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

namespace fullwatt::base {
namespace {

constexpr std::size_t kBlock = 512;

/// A header of the ustar format (POSIX.1-1988): fixed fields, numbers in octal, a checksum over the block.
std::array<char, kBlock> header(const std::string& name, std::size_t size, std::time_t time) {
  std::array<char, kBlock> block{};
  const auto put = [&](std::size_t at, std::size_t room, const std::string& text) {
    std::memcpy(&block[at], text.data(), std::min(room, text.size()));
  };
  const auto octal = [&](std::size_t at, std::size_t room, unsigned long value) {
    std::array<char, 24> text{};
    std::snprintf(text.data(), text.size(), "%0*lo", static_cast<int>(room - 1), value);
    put(at, room - 1, text.data());
  };
  put(0, 100, name);
  octal(100, 8, 0600);
  octal(108, 8, 0);
  octal(116, 8, 0);
  octal(124, 12, size);
  octal(136, 12, static_cast<unsigned long>(time));
  put(148, 8, "        ");
  block[156] = '0';
  put(257, 6, std::string("ustar\0", 6));
  put(263, 2, "00");
  unsigned long sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  octal(148, 7, sum);
  block[154] = '\0';
  block[155] = ' ';
  return block;
}

bool write_all(gzFile out, const char* data, std::size_t size) {
  return size == 0 || gzwrite(out, data, static_cast<unsigned>(size)) == static_cast<int>(size);
}

bool write_file(gzFile out, const ArchiveFile& file, std::time_t time) {
  const auto& [name, content] = file;
  const auto head = header(name, content.size(), time);
  const std::string padding((kBlock - content.size() % kBlock) % kBlock, '\0');
  return write_all(out, head.data(), head.size()) && write_all(out, content.data(), content.size()) &&
         write_all(out, padding.data(), padding.size());
}

}  // namespace

Result<void> write_archive(const std::string& path, const std::vector<ArchiveFile>& files) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) {
    return fail(Error::Kind::bad_input, "cannot write " + path + ": " + std::strerror(errno),
                "Name a file that does not exist yet, in a folder you may write to.");
  }
  gzFile out = gzdopen(fd, "wb");
  const auto now = std::time(nullptr);
  bool ok = out != nullptr;
  for (const auto& file : files) ok = ok && write_file(out, file, now);
  const std::string end(2 * kBlock, '\0');
  ok = ok && write_all(out, end.data(), end.size());
  ok = (out != nullptr ? gzclose(out) == Z_OK : ::close(fd) == 0) && ok;
  if (ok) return {};
  ::unlink(path.c_str());
  return fail(Error::Kind::unavailable, "writing " + path + " failed", "Check the free space on that disk.");
}

}  // namespace fullwatt::base
