#include "fullwatt/show/bars.hpp"

#include <algorithm>
#include <cmath>

#include "fullwatt/show/numbers.hpp"

namespace fullwatt::show {
namespace {

std::string repeated(std::string_view symbol, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += symbol;
  return out;
}

std::string_view solid_of(const Style& style) {
  return style.unicode ? "█" : "#";
}

std::string_view light_of(const Style& style) {
  return style.unicode ? "▒" : ".";
}

std::string_view empty_of(const Style& style) {
  return style.unicode ? "░" : ".";
}

int columns(double share, int width) {
  return static_cast<int>(std::lround(share * width));
}

}  // namespace

std::string stacked_bar(const Style& style, const std::vector<BarPart>& parts, int width) {
  double whole = 0;
  for (const auto& part : parts) whole += std::max(0.0, part.value);
  if (!std::isfinite(whole) || whole <= 0 || width <= 0) return {};
  std::string out;
  double before = 0;
  for (const auto& part : parts) {
    const auto start = columns(before / whole, width);
    before += std::max(0.0, part.value);
    const auto length = columns(before / whole, width) - start;
    if (length > 0)
      out += paint(style, part.ink,
                   std::string(1, part.letter) + repeated(part.solid ? solid_of(style) : light_of(style), length - 1));
  }
  return out;
}

std::string gauge(const Style& style, double share, int width, Ink ink) {
  const auto full = columns(share_of(share, 1), width);
  return paint(style, ink, repeated(solid_of(style), full)) +
         paint(style, Ink::dim, repeated(empty_of(style), width - full));
}

}  // namespace fullwatt::show
