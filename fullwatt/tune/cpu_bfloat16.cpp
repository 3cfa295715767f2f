#include "fullwatt/tune/cpu_bfloat16.hpp"

#include <algorithm>
#include <array>

#include "fullwatt/base/text.hpp"

namespace fullwatt::tune {

bool cpu_knows_bfloat16(base::Files& files) {
  constexpr std::array<std::string_view, 3> kNames{"avx512_bf16", "amx_bf16", "bf16"};
  const auto lines = files.grep("/proc/cpuinfo", "bf16").value_or("");
  const auto first = std::string_view(lines).substr(0, lines.find('\n'));
  return std::ranges::any_of(base::split(first, ' '),
                             [&](const auto word) { return std::ranges::find(kNames, word) != kNames.end(); });
}

}  // namespace fullwatt::tune
