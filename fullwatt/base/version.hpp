#pragma once

#include <compare>
#include <string>
#include <string_view>
#include <vector>

namespace fullwatt::base {

/// A dotted version such as 580.159.03 or 2.11.0; text after the numbers ("+cu130", "rc1") does not take part.
class Version {
 public:
  Version() = default;
  explicit Version(std::string_view text);

  bool known() const { return !parts_.empty(); }
  int part(std::size_t at) const { return at < parts_.size() ? parts_[at] : 0; }
  int major() const { return part(0); }
  int minor() const { return part(1); }

  /// 13.0 and 13 are equal; an unknown version is smaller than any known one.
  std::weak_ordering operator<=>(const Version& other) const;
  bool operator==(const Version& other) const { return (*this <=> other) == 0; }

 private:
  std::vector<int> parts_;
};

/// CUDA writes 13.2 as 13020 (1000 × major + 10 × minor).
std::string cuda_version_text(int encoded);

/// "libcuda.so.580.159.03" → "580.159.03"; empty when the name carries no version beyond its ABI number.
std::string library_version(std::string_view file_name);

}  // namespace fullwatt::base
