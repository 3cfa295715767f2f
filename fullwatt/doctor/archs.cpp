#include "fullwatt/doctor/archs.hpp"

#include <algorithm>
#include <optional>

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"

namespace fullwatt::doctor {
namespace {

struct Arch {
  int major = 0;
  int minor = 0;
  bool ptx = false;
  bool specific = false;

  auto number() const { return major * 10 + minor; }
};

/// "sm_120a" → 12.0, specific. The last digit is the minor version.
std::optional<Arch> parse(std::string_view name) {
  Arch arch;
  arch.ptx = name.starts_with("compute_");
  name.remove_prefix(std::min(name.find('_') + 1, name.size()));
  if (!name.empty() && (name.back() == 'a' || name.back() == 'f')) {
    arch.specific = true;
    name.remove_suffix(1);
  }
  const auto number = base::number<int>(name);
  if (!number || *number < 10) return std::nullopt;
  arch.major = *number / 10;
  arch.minor = *number % 10;
  return arch;
}

std::vector<Arch> parse_all(const std::vector<std::string>& names) {
  std::vector<Arch> archs;
  for (const auto& name : names) {
    if (const auto arch = parse(name)) archs.push_back(*arch);
  }
  return archs;
}

std::string text(const Arch& arch) {
  return std::to_string(arch.major) + "." + std::to_string(arch.minor);
}

}  // namespace

bool covers(const std::vector<std::string>& names, const std::string& compute_capability) {
  const base::Version gpu(compute_capability);
  if (!gpu.known()) return true;
  const auto fits = [&](const Arch& arch) {
    if (arch.specific) return arch.major == gpu.major() && arch.minor == gpu.minor();
    if (arch.ptx) return arch.number() <= gpu.major() * 10 + gpu.minor();
    return arch.major == gpu.major() && arch.minor <= gpu.minor();
  };
  return std::ranges::any_of(parse_all(names), fits);
}

std::string lowest_arch(const std::vector<std::string>& names) {
  const auto archs = parse_all(names);
  return archs.empty() ? std::string{} : text(*std::ranges::min_element(archs, {}, &Arch::number));
}

std::string highest_arch(const std::vector<std::string>& names) {
  const auto archs = parse_all(names);
  return archs.empty() ? std::string{} : text(*std::ranges::max_element(archs, {}, &Arch::number));
}

}  // namespace fullwatt::doctor
