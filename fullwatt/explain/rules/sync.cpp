// The host waits for the GPU in the middle of a step and then has nothing queued.

#include <array>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/rules/lines.hpp"
#include "fullwatt/explain/rules/rule.hpp"

namespace fullwatt::explain {
namespace {

constexpr std::size_t kMostLines = 3;
/// A result of this size is no single number.
constexpr double kManyBytes = 1024;

enum class Kind { value, synchronize, unknown_size, results };

/// What the calls into CUDA at one line come to in a step.
struct AtLine {
  double count = 0;
  double bytes = 0;
  bool device = false;  ///< it waits for everything, as torch.cuda.synchronize does
};

AtLine calls_at(const Case& examined, const model::Site& site) {
  AtLine found;
  for (const auto& use : examined.evidence.attribution.calls) {
    if (use.line != site || (use.category != "sync" && use.category != "copy")) continue;
    if (use.category == "sync") found.count += use.count;
    found.bytes += use.bytes;
    found.device = found.device || mentions(use.name, {"DeviceSynchronize", "CtxSynchronize"});
  }
  return found;
}

/// Bytes that come back to the host in a step.
double bytes_to_host(const Case& examined) {
  double bytes = 0;
  for (const auto& use : examined.evidence.gpu_time.copies) {
    if (use.direction == CopyUse::Direction::to_host) bytes += use.bytes;
  }
  return bytes;
}

/// Without the source the calls have to tell: more bytes at a line than come back at all are on their way to the GPU.
Kind kind_of(const Case& examined, const std::string& text, const AtLine& calls) {
  if (calls.device || mentions(text, {"synchronize("})) return Kind::synchronize;
  if (mentions(text, {"nonzero", ".unique(", "torch.unique", "masked_select", "bincount", "argwhere"})) {
    return Kind::unknown_size;
  }
  const bool moves = text.empty() ? calls.bytes <= 1.1 * bytes_to_host(examined)
                                  : mentions(text, {".cpu(", ".numpy(", ".tolist(", "to('cpu", "to(\"cpu"});
  return moves && calls.bytes >= kManyBytes ? Kind::results : Kind::value;
}

Matches lines(const Case& examined, Kind wanted) {
  Matches matches;
  const auto targets = target_loops(examined);
  for (const auto& group : lines_of_cause(examined, cause::kSyncDrain)) {
    if (matches.size() == kMostLines) break;
    if (stands_in(targets, group.site)) continue;  // named as a loop of its own
    const auto text = source_line(examined.evidence.run, group.site);
    const auto calls = calls_at(examined, group.site);
    if (kind_of(examined, text, calls) != wanted) continue;
    Match match;
    match.at(group.site).costs(group.ms, examined.gain(group.change), examined.step_ms());
    match.fact("value", base::printable(text.empty() ? match.facts["place"] : text, 100));
    match.fact("count", number_text(wanted == Kind::results ? calls.bytes / 1e3 : std::max(calls.count, 1.0)));
    match.saw("GPU idle after it", ms_text(group.ms) + " ms of a step", match.facts["place"]);
    if (!text.empty()) match.saw("line", base::printable(text, 160), match.facts["place"]);
    matches.push_back(std::move(match));
  }
  return matches;
}

Matches sync_each_step(const Case& examined) {
  return lines(examined, Kind::value);
}
Matches synchronize_each_step(const Case& examined) {
  return lines(examined, Kind::synchronize);
}
Matches dynamic_shape(const Case& examined) {
  return lines(examined, Kind::unknown_size);
}
Matches results_moved(const Case& examined) {
  return lines(examined, Kind::results);
}

constexpr std::array kRules{
    Rule{"sync-each-step", sync_each_step},
    Rule{"synchronize-each-step", synchronize_each_step},
    Rule{"dynamic-shape-sync", dynamic_shape},
    Rule{"results-moved-to-cpu", results_moved},
};

}  // namespace

std::span<const Rule> sync_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
