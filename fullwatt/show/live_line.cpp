#include "fullwatt/show/live_line.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/show/numbers.hpp"
#include "fullwatt/show/text_table.hpp"
#include "fullwatt/show/words.hpp"

namespace fullwatt::show {
namespace {

/// A part of the line and how long it is kept; the lowest rank goes first.
struct Part {
  std::string text;
  int rank;
};

std::string power_text(const LiveStatus& status) {
  const auto power = fixed(*status.power_w, 0);
  return status.power_limit_w ? fmt::format("{}/{} W", power, fixed(*status.power_limit_w, 0)) : power + " W";
}

std::string cause_text(const LiveStatus& status) {
  auto text = base::printable(catalog::label(status.top_cause, status.language), 40);
  if (status.top_cause_ms) text += " " + milliseconds(*status.top_cause_ms);
  return text;
}

std::vector<Part> parts_of(const LiveStatus& status) {
  const auto say = [&](std::string_view key) { return std::string(catalog::label(key, status.language)); };
  std::vector<Part> parts{{"fullwatt", 1}};
  if (status.step == 0) parts.push_back({say("live_waiting"), 9});
  if (status.step > 0) parts.push_back({fill(say("live_step"), {{"count", counted(status.step)}}), 2});
  if (status.step_ms) parts.push_back({milliseconds(*status.step_ms), 9});
  if (status.samples_per_second)
    parts.push_back({fill(say("run_samples"), {{"value", figure(*status.samples_per_second)}}), 6});
  if (status.gpu_busy) parts.push_back({"GPU " + percent(*status.gpu_busy), 7});
  if (status.power_w) parts.push_back({power_text(status), 4});
  if (!status.top_cause.empty()) parts.push_back({cause_text(status), 8});
  if (!status.note.empty()) parts.push_back({base::printable(status.note, 80), 3});
  parts.push_back({clock(status.elapsed_s), 5});
  return parts;
}

std::string joined(const std::vector<Part>& parts, const Style& style) {
  std::vector<std::string> texts;
  for (const auto& part : parts) texts.push_back(plain_symbols(style, part.text));
  return base::join(texts, style.unicode ? " · " : " | ");
}

}  // namespace

std::string live_line(const LiveStatus& status, int columns, bool ascii) {
  const Style style{.color = false, .unicode = !ascii, .width = columns, .language = status.language};
  auto parts = parts_of(status);
  while (parts.size() > 1 && display_width(joined(parts, style)) > columns)
    parts.erase(std::ranges::min_element(parts, {}, &Part::rank));
  return fitted(style, joined(parts, style), std::max(0, columns));
}

}  // namespace fullwatt::show
