#pragma once

#include <string>
#include <vector>

#include "fullwatt/show/style.hpp"

namespace fullwatt::show {

/// One part of a stacked bar; its letter stands at its start, so that the bar can be read without colour.
struct BarPart {
  double value = 0;
  char letter = ' ';
  Ink ink = Ink::plain;
  bool solid = true;
};

/// A bar of exactly `width` columns. Parts too small for a column are left out.
std::string stacked_bar(const Style& style, const std::vector<BarPart>& parts, int width);

/// How full something is, from 0 to 1.
std::string gauge(const Style& style, double share, int width, Ink ink);

}  // namespace fullwatt::show
