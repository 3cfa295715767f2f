#include "fullwatt/show/numbers.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace fullwatt::show {
namespace {

constexpr double kLargest = 1e15;

bool is_usable(double value) {
  return std::isfinite(value) && std::abs(value) < kLargest;
}

}  // namespace

std::string fixed(double value, int decimals) {
  if (!is_usable(value)) return "?";
  auto text = fmt::format("{:.{}f}", value, decimals);
  const bool is_zero = text.find_first_not_of("-0.") == std::string::npos;
  if (is_zero && text.starts_with('-')) text.erase(0, 1);
  const auto first = text.starts_with('-') ? 1U : 0U;
  auto at = std::min(text.find('.'), text.size());
  for (; at > first + 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

int decimals_for(double largest) {
  const auto size = std::abs(largest);
  return !is_usable(size) || size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : size >= 0.1 ? 3 : 4;
}

std::string figure(double value) {
  const auto size = std::abs(value);
  auto text = fixed(value, size >= 99.95                 ? 0
                           : size >= 9.995               ? 1
                           : size >= 0.0995 || size == 0 ? 2
                           : size >= 0.00995             ? 3
                                                         : 4);
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string milliseconds(double ms) {
  return figure(ms) + " ms";
}

std::string percent(double share) {
  if (share > 0 && share < 0.005) return "<1 %";
  return fixed(share * 100, 0) + " %";
}

std::string counted(std::uint64_t number) {
  return number < static_cast<std::uint64_t>(kLargest) ? fixed(static_cast<double>(number), 0) : std::to_string(number);
}

std::string duration(double seconds) {
  if (!is_usable(seconds)) return "?";
  if (seconds < 1) return milliseconds(seconds * 1000);
  if (seconds < 59.95) return fixed(seconds, 1) + " s";
  const auto whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string clock(double seconds) {
  if (!is_usable(seconds)) return "?";
  const auto whole = std::max(0LL, std::llround(seconds));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole % 3600 / 60, whole % 60);
}

std::string times(double factor) {
  return fixed(factor, factor >= 10 ? 0 : factor >= 1.095 ? 1 : 2) + "×";
}

double share_of(double value, double whole) {
  const auto share = value / whole;
  return std::isfinite(share) ? std::clamp(share, 0.0, 1.0) : 0.0;
}

}  // namespace fullwatt::show
