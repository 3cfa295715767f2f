#include "fullwatt/base/version.hpp"

#include <algorithm>

#include "fullwatt/base/text.hpp"

namespace fullwatt::base {

Version::Version(std::string_view text) {
  text = trim(text);
  if (text.starts_with('v')) text.remove_prefix(1);
  while (!text.empty()) {
    const auto digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const auto value = number<int>(text.substr(0, digits));
    if (!value) return;
    parts_.push_back(*value);
    text.remove_prefix(digits);
    if (!text.starts_with('.')) return;
    text.remove_prefix(1);
  }
}

std::weak_ordering Version::operator<=>(const Version& other) const {
  if (known() != other.known()) return known() <=> other.known();
  for (std::size_t i = 0; i < std::max(parts_.size(), other.parts_.size()); ++i) {
    if (part(i) != other.part(i)) return part(i) <=> other.part(i);
  }
  return std::weak_ordering::equivalent;
}

std::string cuda_version_text(int encoded) {
  return std::to_string(encoded / 1000) + "." + std::to_string(encoded % 1000 / 10);
}

std::string library_version(std::string_view file_name) {
  const auto at = file_name.find(".so.");
  if (at == std::string_view::npos) return {};
  const auto version = file_name.substr(at + 4);
  return contains(version, ".") ? std::string(version) : std::string{};
}

}  // namespace fullwatt::base
