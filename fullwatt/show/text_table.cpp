#include "fullwatt/show/text_table.hpp"

#include <algorithm>
#include <numeric>

namespace fullwatt::show {
namespace {

constexpr int kGap = 2;
constexpr int kNarrowestFlexible = 8;

std::string blanks(int count) {
  return std::string(static_cast<std::size_t>(std::max(0, count)), ' ');
}

/// The first or last whole characters of a text that fit into `width` columns.
std::string taken(std::string_view text, int width, bool from_end) {
  const auto starts_character = [&](std::size_t at) {
    return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xC0U) != 0x80U;
  };
  std::size_t at = from_end ? 0 : text.size();
  const auto part = [&] { return from_end ? text.substr(at) : text.substr(0, at); };
  while (!part().empty() && (!starts_character(at) || display_width(part()) > width))
    at += from_end ? 1U : std::size_t(-1);
  return std::string(part());
}

}  // namespace

std::string fitted(const Style& style, std::string_view text, int width, bool keep_end) {
  auto shown = plain_symbols(style, std::string(text));
  if (display_width(shown) <= width) return shown;
  const std::string cut = style.unicode ? "…" : "...";
  const auto room = width - display_width(cut);
  if (room <= 0) return taken(shown, std::max(0, width), keep_end);
  return keep_end ? cut + taken(shown, room, true) : taken(shown, room, false) + cut;
}

std::vector<int> TextTable::widths(int room) const {
  std::vector<int> widths;
  for (const auto& column : columns_) widths.push_back(display_width(plain_symbols(style_, column.head)));
  for (const auto& cells : rows_) {
    for (std::size_t i = 0; i < std::min(cells.size(), columns_.size()); ++i)
      widths[i] = std::max(widths[i], display_width(plain_symbols(style_, cells[i].text)));
  }
  auto surplus = std::accumulate(widths.begin(), widths.end(), 0) + kGap * (static_cast<int>(widths.size()) - 1) - room;
  for (std::size_t i = columns_.size(); i-- > 0 && surplus > 0;) {
    if (!columns_[i].flexible) continue;
    const auto given = std::clamp(widths[i] - kNarrowestFlexible, 0, surplus);
    widths[i] -= given;
    surplus -= given;
  }
  return widths;
}

std::string TextTable::line(const std::vector<Cell>& cells, const std::vector<int>& widths, int indent) const {
  std::string out = blanks(indent);
  for (std::size_t i = 0; i < std::min(cells.size(), columns_.size()); ++i) {
    const auto text = fitted(style_, cells[i].text, widths[i], columns_[i].keep_end);
    const auto padding = blanks(widths[i] - display_width(text));
    const auto painted = paint(style_, cells[i].ink, text);
    if (i > 0) out += blanks(kGap);
    out += columns_[i].align == Align::right ? padding + painted : painted + padding;
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

std::vector<std::string> TextTable::lines(int indent) const {
  const auto room = widths(style_.width - indent);
  std::vector<std::string> out;
  std::vector<Cell> head;
  for (const auto& column : columns_) head.push_back({column.head, Ink::dim});
  if (std::ranges::any_of(head, [](const Cell& cell) { return !cell.text.empty(); }))
    out.push_back(line(head, room, indent));
  for (const auto& cells : rows_) out.push_back(line(cells, room, indent));
  return out;
}

}  // namespace fullwatt::show
