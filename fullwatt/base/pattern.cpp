#include "fullwatt/base/pattern.hpp"

#include <vector>

namespace fullwatt::base {
namespace {

/// A literal and the wildcard in front of it; the last piece's literal may be empty.
struct Piece {
  bool wild = false;
  std::string_view name;
  std::string_view literal;
};

std::vector<Piece> parse(std::string_view pattern) {
  std::vector<Piece> pieces(1);
  std::size_t literal_start = 0;
  const auto close_literal = [&](std::size_t end) {
    pieces.back().literal = pattern.substr(literal_start, end - literal_start);
  };
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '*') {
      close_literal(i);
      pieces.push_back({.wild = true, .name = {}, .literal = {}});
      literal_start = i + 1;
    } else if (pattern[i] == '{') {
      const auto end = pattern.find('}', i);
      if (end == std::string_view::npos) continue;
      close_literal(i);
      pieces.push_back({.wild = true, .name = pattern.substr(i + 1, end - i - 1), .literal = {}});
      i = end;
      literal_start = end + 1;
    }
  }
  close_literal(pattern.size());
  return pieces;
}

std::string_view to_blank(std::string_view text) {
  return text.substr(0, text.find_first_of(" \t,;\"'"));
}

/// Matches the pieces after the first, whose literal ended at `at`.
std::optional<Captures> match_rest(const std::vector<Piece>& pieces, std::string_view line, std::size_t at) {
  Captures captures;
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    const auto& piece = pieces[i];
    if (piece.literal.empty()) {
      if (!piece.name.empty()) captures.emplace(piece.name, to_blank(line.substr(at)));
      continue;
    }
    const auto found = line.find(piece.literal, at);
    if (found == std::string_view::npos) return std::nullopt;
    if (!piece.name.empty()) captures.emplace(piece.name, line.substr(at, found - at));
    at = found + piece.literal.size();
  }
  return captures;
}

}  // namespace

std::optional<Captures> match(std::string_view pattern, std::string_view line) {
  const auto pieces = parse(pattern);
  const auto start = line.find(pieces.front().literal);
  if (start == std::string_view::npos) return std::nullopt;
  // Every later literal is searched from the earliest place it can stand, so one attempt decides.
  return match_rest(pieces, line, start + pieces.front().literal.size());
}

}  // namespace fullwatt::base
