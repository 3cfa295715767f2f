#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fullwatt/show/style.hpp"

namespace fullwatt::show {

/// `text` cut to `width` columns with the cut marked; `keep_end` cuts the front, as for paths.
std::string fitted(const Style& style, std::string_view text, int width, bool keep_end = false);

/// Rows in aligned columns, no wider than the terminal: the last flexible column gives way.
class TextTable {
 public:
  enum class Align { left, right };
  struct Column {
    std::string head;
    Align align = Align::left;
    bool flexible = false;
    bool keep_end = false;  ///< cut at the front
  };
  struct Cell {
    std::string text;
    Ink ink = Ink::plain;
  };

  TextTable(const Style& style, std::vector<Column> columns) : style_(style), columns_(std::move(columns)) {}

  void row(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  std::vector<std::string> lines(int indent) const;

 private:
  std::vector<int> widths(int room) const;
  std::string line(const std::vector<Cell>& cells, const std::vector<int>& widths, int indent) const;

  Style style_;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace fullwatt::show
