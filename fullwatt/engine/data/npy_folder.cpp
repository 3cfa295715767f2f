#include <algorithm>
#include <cstring>
#include <filesystem>
#include <new>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/data/data_set.hpp"

namespace fullwatt::engine {
namespace {

namespace fs = std::filesystem;
using base::Error;

/// Whether a name fits a pattern with `*` for anything.
bool fits(std::string_view name, std::string_view pattern) {
  const auto star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  name.remove_prefix(star);
  pattern.remove_prefix(star + 1);
  if (pattern.empty()) return true;
  for (; !name.empty(); name.remove_prefix(1)) {
    if (fits(name, pattern)) return true;
  }
  return false;
}

base::Result<std::vector<std::string>> files_of(const std::string& folder, const std::string& pattern) {
  std::error_code failure;
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    if (fits(entry.path().filename().string(), pattern)) found.push_back(entry.path().string());
  }
  if (failure)
    return base::fail(Error::Kind::not_found, base::printable(folder, 300) + ": " + failure.message(),
                      "Name the folder with the data (data: folder in a configuration).");
  if (found.empty())
    return base::fail(Error::Kind::not_found,
                      fmt::format("no file in {} fits {}", base::printable(folder, 300), base::printable(pattern, 100)),
                      "A field's pattern is a file's name with * for anything (data: fields in a configuration).");
  std::ranges::sort(found);
  return found;
}

/// Memory in huge pages, where the machine has them: to copy rows from anywhere in it takes a fifth less time.
class KeptRows {
 public:
  KeptRows() = default;
  explicit KeptRows(std::size_t bytes)
      : start_(static_cast<std::byte*>(::operator new(bytes, kHugePage)),
               [](std::byte* start) { ::operator delete(start, kHugePage); }) {
    ::madvise(start_.get(), bytes, MADV_HUGEPAGE);
  }

  bool empty() const { return start_ == nullptr; }
  std::byte* data() const { return start_.get(); }

 private:
  static constexpr std::align_val_t kHugePage{2U << 20U};

  std::unique_ptr<std::byte, void (*)(std::byte*)> start_{nullptr, [](std::byte*) {}};
};

/// One field: several files, one array.
struct Column {
  std::vector<NpyArray> files;  ///< none where all rows are in memory
  std::vector<std::string> paths;
  std::vector<std::int64_t> first_rows;  ///< of each file
  KeptRows kept;                         ///< all rows, where they are in memory

  std::size_t file_of(std::int64_t sample) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(first_rows, sample) - first_rows.begin()) - 1;
  }

  /// Samples that follow each other in one file are read at once; returns how many these are.
  base::Result<std::size_t> read(std::span<const std::int64_t> samples, std::byte* to) const {
    const auto file = file_of(samples.front());
    const auto first = samples.front() - first_rows[file];
    const auto most = std::min(samples.size(), static_cast<std::size_t>(files[file].rows() - first));
    std::size_t count = 1;
    while (count < most && samples[count] == samples[count - 1] + 1) ++count;
    const auto done = files[file].read(first, static_cast<std::int64_t>(count), to);
    if (!done) return std::unexpected(done.error());
    return count;
  }
};

/// What small rows may take of the machine's memory.
std::size_t most_kept() {
  constexpr std::size_t kMostBytes = 2UL << 30U;
  constexpr std::size_t kShare = 16;
  const auto pages = ::sysconf(_SC_PHYS_PAGES);
  return std::min(kMostBytes, static_cast<std::size_t>(std::max(pages, 0L)) *
                                  static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) / kShare);
}

/// Small rows are taken into memory: to read them one by one takes ten times as long (433 ns for 8 bytes, and 35).
base::Result<void> keep_small(Column& column) {
  constexpr std::size_t kSmallRow = 4096;  ///< from here on copying takes longer than the call
  const auto row_bytes = column.files.front().row_bytes();
  const auto rows = column.first_rows.back() + column.files.back().rows();
  if (row_bytes >= kSmallRow || static_cast<std::size_t>(rows) * row_bytes > most_kept()) return {};
  column.kept = KeptRows(static_cast<std::size_t>(rows) * row_bytes);
  for (std::size_t i = 0; i < column.files.size(); ++i) {
    const auto& file = column.files[i];
    auto* const to = column.kept.data() + static_cast<std::size_t>(column.first_rows[i]) * row_bytes;
    if (const auto read = file.read(0, file.rows(), to); !read) return read;
  }
  return {};
}

base::Result<Column> open_column(const std::vector<std::string>& paths) {
  Column column;
  std::int64_t rows = 0;
  for (const auto& path : paths) {
    auto array = NpyArray::open(path);
    if (!array) return std::unexpected(array.error());
    if (array->rows() == 0) continue;
    const auto& first = column.files.empty() ? *array : column.files.front();
    if (array->dtype() != first.dtype() || array->row_shape() != first.row_shape())
      return base::fail(
          Error::Kind::bad_input,
          fmt::format("{} holds {} of the shape ({}), and {} {} of ({})", base::printable(array->path(), 300),
                      to_string(array->dtype()), fmt::join(array->row_shape(), ", "),
                      base::printable(first.path(), 300), to_string(first.dtype()), fmt::join(first.row_shape(), ", ")),
          "All files of a field hold samples of one kind.");
    column.first_rows.push_back(rows);
    column.paths.push_back(path);
    rows += array->rows();
    column.files.push_back(*std::move(array));
  }
  if (column.files.empty())
    return base::fail(Error::Kind::bad_input, base::printable(paths.front(), 300) + ": it holds no samples",
                      "Write the samples into it, or name other files.");
  if (const auto kept = keep_small(column); !kept) return std::unexpected(kept.error());
  return column;
}

class NpyFolder final : public DataSet {
 public:
  base::Result<void> add(const std::string& name, Column column) {
    const auto& last = column.files.back();
    const auto rows = column.first_rows.back() + last.rows();
    if (!fields_.empty() && rows != samples_)
      return base::fail(Error::Kind::bad_input,
                        fmt::format("the field {} has {} samples, and {} has {}", base::printable(name, 100), rows,
                                    base::printable(fields_.front().name, 100), samples_),
                        "Each sample needs all fields; files may be missing.");
    samples_ = rows;
    fields_.push_back({name, last.dtype(), last.row_shape()});
    if (!column.kept.empty()) column.files.clear();
    columns_.push_back(std::move(column));
    return {};
  }

  base::Result<void> fetch(std::size_t field, std::span<const std::int64_t> samples, std::byte* to) const override {
    const auto& column = columns_[field];
    const auto bytes = fields_[field].sample_bytes();
    if (!column.kept.empty()) {
      for (std::size_t i = 0; i < samples.size(); ++i)
        std::memcpy(to + i * bytes, column.kept.data() + static_cast<std::size_t>(samples[i]) * bytes, bytes);
      return {};
    }
    for (std::size_t i = 0; i < samples.size();) {
      const auto read = column.read(samples.subspan(i), to + i * bytes);
      if (!read) return std::unexpected(read.error());
      i += *read;
    }
    return {};
  }

  std::string origin(std::size_t field, std::int64_t sample) const override {
    const auto& column = columns_[field];
    const auto file = column.file_of(sample);
    return fmt::format("{}, row {} (the first is 0)", base::printable(column.paths[file], 300),
                       sample - column.first_rows[file]);
  }

 private:
  std::vector<Column> columns_;
};

}  // namespace

std::string DataSet::origin(std::size_t /*field*/, std::int64_t sample) const {
  return fmt::format("sample {} (the first is 0)", sample);
}

std::size_t Field::sample_bytes() const {
  std::size_t bytes = bytes_of(dtype);
  for (const auto length : shape) bytes *= static_cast<std::size_t>(length);
  return bytes;
}

base::Result<std::unique_ptr<DataSet>> open_npy_folder(const std::string& folder,
                                                       const std::map<std::string, std::string>& patterns) {
  auto data = std::make_unique<NpyFolder>();
  for (const auto& [name, pattern] : patterns) {
    const auto paths = files_of(folder, pattern);
    if (!paths) return std::unexpected(paths.error());
    auto column = open_column(*paths);
    if (!column) return std::unexpected(column.error());
    if (const auto added = data->add(name, *std::move(column)); !added) return std::unexpected(added.error());
  }
  return data;
}

}  // namespace fullwatt::engine
