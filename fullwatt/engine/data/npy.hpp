#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/base/error.hpp"

/// NumPy's file format, as far as numbers go: versions 1 to 3, in the byte order of this machine, row after row.
namespace fullwatt::engine {

enum class Dtype {
  boolean,
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  float32,
  float64,
  bfloat16
};
std::size_t bytes_of(Dtype dtype);
std::string_view to_string(Dtype dtype);

/// What a file says about itself before its numbers begin.
struct NpyHeader {
  Dtype dtype = Dtype::float32;
  std::vector<std::int64_t> shape;
  std::size_t data_offset = 0;

  std::size_t data_bytes() const;
};

/// From the beginning of a file. Whatever cannot be read is refused with the reason and with what to do about it.
base::Result<NpyHeader> parse_npy_header(std::string_view start);

/// The rows of a file. Copies of it share the open file.
class NpyArray {
 public:
  static base::Result<NpyArray> open(const std::string& path);

  const std::string& path() const { return path_; }
  Dtype dtype() const { return header_.dtype; }
  /// Of one row: all dimensions but the first.
  std::vector<std::int64_t> row_shape() const { return {header_.shape.begin() + 1, header_.shape.end()}; }
  std::int64_t rows() const { return header_.shape.front(); }
  std::size_t row_bytes() const { return row_bytes_; }
  /// Rows that follow each other. Fails where the file has become shorter, or its disk does not answer.
  base::Result<void> read(std::int64_t first, std::int64_t count, std::byte* to) const;

 private:
  class File;

  NpyArray() = default;

  std::string path_;
  NpyHeader header_;
  std::size_t row_bytes_ = 0;
  std::shared_ptr<const File> file_;
};

}  // namespace fullwatt::engine
