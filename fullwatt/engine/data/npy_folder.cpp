#include <algorithm>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

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
                      "Name the folder with the data under data: folder in the configuration.");
  if (found.empty())
    return base::fail(Error::Kind::not_found,
                      fmt::format("no file in {} fits {}", base::printable(folder, 300), base::printable(pattern, 100)),
                      "The patterns stand under data: fields in the configuration.");
  std::ranges::sort(found);
  return found;
}

/// One field: several files, one array.
struct Column {
  std::vector<NpyArray> files;
  std::vector<std::int64_t> first_rows;  ///< of each file

  const std::byte* row(std::int64_t sample) const {
    const auto after = std::ranges::upper_bound(first_rows, sample);
    const auto file = static_cast<std::size_t>(after - first_rows.begin()) - 1;
    return files[file].row(sample - first_rows[file]);
  }
};

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
    rows += array->rows();
    column.files.push_back(*std::move(array));
  }
  if (column.files.empty())
    return base::fail(Error::Kind::bad_input, base::printable(paths.front(), 300) + ": it holds no samples");
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
    columns_.push_back(std::move(column));
    return {};
  }

  base::Result<void> fetch(std::size_t field, std::span<const std::int64_t> samples, std::byte* to) const override {
    const auto& column = columns_[field];
    const auto bytes = column.files.front().row_bytes();
    for (std::size_t i = 0; i < samples.size(); ++i) std::memcpy(to + i * bytes, column.row(samples[i]), bytes);
    return {};
  }

 private:
  std::vector<Column> columns_;
};

}  // namespace

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
