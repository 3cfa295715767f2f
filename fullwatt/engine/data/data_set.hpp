#pragma once

#include <map>
#include <span>

#include "fullwatt/engine/data/npy.hpp"

/// Samples by number, each made of the same named fields.
namespace fullwatt::engine {

struct Field {
  std::string name;
  Dtype dtype = Dtype::float32;
  std::vector<std::int64_t> shape;  ///< of one sample

  std::size_t sample_bytes() const;
};

class DataSet {
 public:
  DataSet() = default;
  DataSet(const DataSet&) = delete;
  DataSet& operator=(const DataSet&) = delete;
  virtual ~DataSet() = default;

  const std::vector<Field>& fields() const { return fields_; }
  std::int64_t samples() const { return samples_; }
  /// One field of these samples, one behind the other. Called by several threads at once.
  virtual base::Result<void> fetch(std::size_t field, std::span<const std::int64_t> samples, std::byte* to) const = 0;
  /// What to look at when a field of a sample is wrong: its file, where it has one.
  virtual std::string origin(std::size_t field, std::int64_t sample) const;

 protected:
  std::vector<Field> fields_;
  std::int64_t samples_ = 0;
};

/// Fields in .npy files of a folder: those that a field's pattern fits (`*` for anything), in the order of their names,
/// are one array.
base::Result<std::unique_ptr<DataSet>> open_npy_folder(const std::string& folder,
                                                       const std::map<std::string, std::string>& patterns);

}  // namespace fullwatt::engine
