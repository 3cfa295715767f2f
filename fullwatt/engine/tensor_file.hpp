#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fullwatt/engine/data/npy.hpp"

/// Tensors in a file, in the format safetensors, which Python reads, too; with a checksum of everything, and whole or
/// not there at all.
namespace fullwatt::engine {

/// Numbers that lie somewhere, row after row.
struct TensorView {
  std::string name;
  Dtype dtype = Dtype::float32;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;

  std::size_t bytes() const;
};

using Metadata = std::map<std::string, std::string>;

/// A file of that name that is there stays until the new one is safely on the disk.
base::Result<void> write_tensors(const std::string& path, const std::vector<TensorView>& tensors,
                                 const Metadata& metadata);

class TensorFile {
 public:
  /// Refuses what is cut off or does not fit its checksum.
  static base::Result<TensorFile> open(const std::string& path);

  const std::vector<TensorView>& tensors() const { return tensors_; }
  const TensorView* find(const std::string& name) const;
  const Metadata& metadata() const { return metadata_; }

 private:
  TensorFile() = default;

  std::vector<TensorView> tensors_;
  Metadata metadata_;
  std::shared_ptr<const std::string> bytes_;
};

/// From a file's bytes; what the tensors point to stays the caller's.
base::Result<std::pair<std::vector<TensorView>, Metadata>> parse_tensors(const std::string& bytes);

}  // namespace fullwatt::engine
