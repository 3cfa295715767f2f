#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/data/npy.hpp"

namespace fullwatt::engine {
namespace {

using base::Error;

constexpr std::size_t kUsualHeader = 4096;             ///< NumPy's take 128 bytes
constexpr std::size_t kMostHeader = (1U << 20U) + 12;  ///< what parse_npy_header takes, and what stands before it

Error with_path(const std::string& path, const Error& error) {
  return {error.kind, base::printable(path, 300) + ": " + error.message, error.remedy};
}

Error not_opened() {
  if (errno == EMFILE || errno == ENFILE)
    return {Error::Kind::unavailable, "too many files are open",
            "Allow more (ulimit -n 65536), or join the files of a field into fewer."};
  return {errno == EACCES ? Error::Kind::refused : Error::Kind::not_found, std::strerror(errno), ""};
}

base::Result<NpyHeader> check_header(std::string_view start, std::size_t file_bytes) {
  auto header = parse_npy_header(start);
  if (!header) return header;
  if (header->shape.empty())
    return base::fail(Error::Kind::bad_input, "it holds a single number, no samples",
                      "Its first dimension has to count the samples.");
  if (file_bytes - header->data_offset < header->data_bytes())
    return base::fail(Error::Kind::bad_input,
                      fmt::format("it is cut off: {} bytes of numbers are there, and its shape needs {}",
                                  file_bytes - header->data_offset, header->data_bytes()),
                      "Write it again; whoever wrote it was stopped, or the disk was full.");
  return header;
}

}  // namespace

/// Read by calls, not mapped: where another program cuts the file, a call fails, and a mapping ends the process
/// (SIGBUS).
class NpyArray::File {
 public:
  explicit File(const std::string& path) : number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (number_ >= 0) ::close(number_);
  }

  base::Result<std::size_t> bytes() const {
    struct stat status{};
    if (number_ < 0 || ::fstat(number_, &status) != 0) return std::unexpected(not_opened());
    return static_cast<std::size_t>(status.st_size);
  }

  base::Result<void> read(std::size_t at, std::size_t bytes, void* to) const {
    auto* place = static_cast<std::byte*>(to);
    while (bytes > 0) {
      const auto read = ::pread(number_, place, bytes, static_cast<off_t>(at));
      if (read < 0 && errno == EINTR) continue;
      if (read < 0)
        return base::fail(Error::Kind::unavailable, fmt::format("it cannot be read: {}", std::strerror(errno)),
                          "Look after its disk or network, then go on from the last checkpoint.");
      if (read == 0)
        return base::fail(
            Error::Kind::unavailable,
            fmt::format("it became shorter while it was in use: {} bytes are left", this->bytes().value_or(0)),
            "Another program writes to it: write the file again, let nothing change it while it is in use, "
            "and go on from the last checkpoint.");
      const auto done = static_cast<std::size_t>(read);
      place += done;
      at += done;
      bytes -= done;
    }
    return {};
  }

 private:
  int number_;
};

base::Result<NpyArray> NpyArray::open(const std::string& path) {
  const auto failed = [&](const Error& error) { return std::unexpected(with_path(path, error)); };
  NpyArray array;
  array.path_ = path;
  array.file_ = std::make_shared<const File>(path);
  const auto bytes = array.file_->bytes();
  if (!bytes) return failed(bytes.error());
  if (*bytes == 0) return failed({Error::Kind::bad_input, "it is empty", ""});
  base::Result<NpyHeader> header;
  for (const auto most : {kUsualHeader, kMostHeader}) {
    std::string start(std::min(*bytes, most), '\0');
    if (const auto read = array.file_->read(0, start.size(), start.data()); !read) return failed(read.error());
    header = check_header(start, *bytes);
    if (header) break;
  }
  if (!header) return failed(header.error());
  array.header_ = *std::move(header);
  array.row_bytes_ = array.rows() > 0 ? array.header_.data_bytes() / static_cast<std::size_t>(array.rows()) : 0;
  return array;
}

base::Result<void> NpyArray::read(std::int64_t first, std::int64_t count, std::byte* to) const {
  const auto at = static_cast<std::size_t>(first) * row_bytes_;
  const auto bytes = static_cast<std::size_t>(count) * row_bytes_;
  const auto done = file_->read(header_.data_offset + at, bytes, to);
  if (!done) return std::unexpected(with_path(path_, done.error()));
  return {};
}

}  // namespace fullwatt::engine
