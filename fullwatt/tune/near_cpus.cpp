#include "fullwatt/tune/near_cpus.hpp"

#include <iterator>
#include <vector>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::tune {
namespace {

/// Those of `usable` that a list of the kernel's names.
std::set<int> listed(const std::string& list, const std::set<int>& usable) {
  std::set<int> found;
  for (const auto part : base::split(list, ',')) {
    const auto dash = part.find('-');
    const auto first = base::number<int>(part.substr(0, dash));
    const auto last = dash != std::string_view::npos ? base::number<int>(part.substr(dash + 1)) : first;
    if (!first || !last) return {};
    for (const auto cpu : usable) {
      if (cpu >= *first && cpu <= *last) found.insert(cpu);
    }
  }
  return found;
}

std::string as_list(const std::set<int>& cpus) {
  std::vector<std::string> ranges;
  for (auto at = cpus.begin(); at != cpus.end(); ++at) {
    const auto first = *at;
    while (std::next(at) != cpus.end() && *std::next(at) == *at + 1) ++at;
    ranges.push_back(first == *at ? std::to_string(first) : fmt::format("{}-{}", first, *at));
  }
  return base::join(ranges, ",");
}

}  // namespace

std::string near_cpus(base::Files& files, const std::string& bdf, const std::set<int>& usable) {
  const auto list = files.read_line("/sys/bus/pci/devices/" + bdf + "/local_cpulist");
  if (bdf.empty() || !list) return {};
  const auto near = listed(*list, usable);
  return near.size() < usable.size() ? as_list(near) : std::string();
}

}  // namespace fullwatt::tune
