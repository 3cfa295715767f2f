#pragma once

#include <cstdint>
#include <string>

/// Numbers as people read them. What is not finite becomes "?".
namespace fullwatt::show {

std::string fixed(double value, int decimals);
/// Decimals that give a column whose largest value is `largest` about three digits that count.
int decimals_for(double largest);
/// Three digits that count, without zeros at the end: 0.041, 4.12, 41.2, 412, 4,120.
std::string figure(double value);
/// "21.4 ms".
std::string milliseconds(double ms);
/// "62 %" of a share from 0 to 1; "<1 %" rather than a false nothing.
std::string percent(double share);
/// "12,400".
std::string counted(std::uint64_t number);
/// "38.2 s", "4 min 32 s", "1 h 12 min".
std::string duration(double seconds);
/// "4:32", "1:12:07".
std::string clock(double seconds);
/// "2.4×".
std::string times(double factor);

/// `value` within 0 and 1; 0 for what is no number.
double share_of(double value, double whole);

}  // namespace fullwatt::show
