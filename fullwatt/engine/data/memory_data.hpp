#pragma once

#include "fullwatt/engine/data/data_set.hpp"

namespace fullwatt::engine {

/// An array that somebody else made, row after row; its first dimension counts the samples.
struct MemoryArray {
  std::string name;
  Dtype dtype = Dtype::float32;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
};

/// One field for each array. Nothing is copied: the caller keeps the memory, unchanged, as long as the data set lives.
base::Result<std::unique_ptr<DataSet>> in_memory(std::vector<MemoryArray> arrays);

}  // namespace fullwatt::engine
