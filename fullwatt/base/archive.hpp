#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fullwatt/base/error.hpp"

namespace fullwatt::base {

/// A name and its content.
using ArchiveFile = std::pair<std::string, std::string>;

/// Writes a new .tar.gz that only its owner may read. An existing file or link at `path` is never touched.
Result<void> write_archive(const std::string& path, const std::vector<ArchiveFile>& files);

}  // namespace fullwatt::base
