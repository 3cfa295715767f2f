// What is copied to the GPU, from where, and who waits for it.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/machine_facts.hpp"
#include "fullwatt/explain/rules/lines.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

using Direction = CopyUse::Direction;

/// Smaller ones are single numbers and tables, not batches.
constexpr double kBatchBytes = 65'536;

CopyUse to_device(const Case& examined, bool pageable) {
  CopyUse sum;
  sum.pageable = pageable;
  for (const auto& use : examined.evidence.gpu_time.copies) {
    if (use.direction != Direction::to_device || use.pageable != pageable) continue;
    sum.ms += use.ms;
    sum.count += use.count;
    sum.bytes += use.bytes;
  }
  return sum;
}

double gigabytes_per_second(const CopyUse& use) {
  return use.ms > 0 ? use.bytes / 1e6 / use.ms : 0;
}

/// The copies that a line asks for.
CallUse copies_at(const Case& examined, const model::Site& site) {
  CallUse sum;
  for (const auto& use : examined.evidence.attribution.calls) {
    if (use.line != site || use.bytes <= 0) continue;
    sum.count += use.count;
    sum.bytes += use.bytes;
    sum.pageable = sum.pageable || use.pageable;
  }
  return sum;
}

enum class Kind { small, pageable, pinned };

Kind kind_of(const Case& examined, const model::Site& site) {
  const auto copies = copies_at(examined, site);
  const auto text = source_line(examined.evidence.run, site);
  const bool makes = mentions(
      text, {"torch.tensor(", "torch.as_tensor(", "torch.zeros(", "torch.ones(", "torch.full(", "torch.arange(",
             "torch.rand", "torch.eye(", "torch.linspace(", "torch.FloatTensor(", "torch.LongTensor(", "torch.empty("});
  const bool small = copies.count > 0 && copies.bytes / copies.count < kBatchBytes;
  if (makes || (small && copies.count >= 4)) return Kind::small;
  return copies.pageable ? Kind::pageable : Kind::pinned;
}

/// Blocking copies by line, of one kind.
std::vector<LineGroup> blocked(const Case& examined, Kind wanted) {
  auto groups = lines_of_cause(examined, cause::kCopyWait);
  std::erase_if(groups, [&](const LineGroup& group) { return kind_of(examined, group.site) != wanted; });
  return groups;
}

/// The copy itself, not hidden behind kernels, and the host's wait for it: half of that is promised.
Matches pageable(const Case& examined) {
  const auto copies = to_device(examined, true);
  if (copies.bytes < kBatchBytes) return {};
  const auto groups = blocked(examined, Kind::pageable);
  double waited = 0;
  for (const auto& group : groups) waited += group.ms;
  const double exposed = std::min(examined.charged(cause::kGpuCopyToDevice), copies.ms);
  const double charged = waited + exposed;
  Match match;
  match.near({groups.empty() ? main_line(examined, cause::kGpuCopyToDevice) : groups.front().site});
  match.costs(charged, charged * (1 - keeps("copies-pageable")), examined.step_ms());
  match.fact("count", number_text(copies.bytes / 1e6)).fact("value", number_text(gigabytes_per_second(copies)));
  match.saw("copies from pageable memory",
            fmt::format("{} MB a step, {} ms", number_text(copies.bytes / 1e6), ms_text(copies.ms)), "CUPTI");
  const auto* loader = examined.facts().training_loader();
  if (loader != nullptr && loader->pin_memory)
    match.saw("pin_memory", *loader->pin_memory ? "true" : "false", place_of(loader->site));
  return {match};
}

Matches blocking(const Case& examined) {
  Matches matches;
  for (const auto& group : blocked(examined, Kind::pinned)) {
    if (matches.size() == 2) break;
    Match match;
    match.at(group.site).costs(group.ms, examined.gain(group.change), examined.step_ms());
    match.saw("waits behind a copy from pinned memory", ms_text(group.ms) + " ms of a step", match.facts["place"]);
    matches.push_back(std::move(match));
  }
  return matches;
}

Matches made_on_cpu(const Case& examined) {
  Matches matches;
  for (const auto& group : blocked(examined, Kind::small)) {
    if (matches.size() == 2) break;
    Match match;
    match.at(group.site).costs(group.ms, examined.gain(group.change), examined.step_ms());
    const auto text = source_line(examined.evidence.run, group.site);
    match.fact("value", base::printable(text.empty() ? match.facts["place"] : text, 100));
    match.fact("count", number_text(std::max(1.0, copies_at(examined, group.site).count)));
    matches.push_back(
        std::move(match.saw("small copies to the GPU", match.facts["count"] + " a step", match.facts["place"])));
  }
  return matches;
}

/// What the card's link could carry; nothing when its width is not known.
std::optional<double> link_gbs(const Case& examined) {
  const auto* device = examined.gpu.nvml;
  if (device == nullptr || !device->pcie_max_generation || !device->pcie_width) return std::nullopt;
  const double gbs = catalog::pcie_gbs(*device->pcie_max_generation, *device->pcie_width);
  return gbs > 0 ? std::optional(gbs) : std::nullopt;
}

Matches fill_the_bus(const Case& examined) {
  const auto copies = to_device(examined, false);
  const double exposed = std::min(examined.charged(cause::kGpuCopyToDevice), copies.ms);
  if (copies.bytes < 1e6 || examined.share(exposed) < 0.05) return {};
  Match match;
  match.near({main_line(examined, cause::kGpuCopyToDevice)});
  match.costs(exposed, exposed * (1 - keeps("copies-fill-the-bus")), examined.step_ms());
  match.fact("count", number_text(copies.bytes / 1e6)).fact("value", number_text(gigabytes_per_second(copies)));
  match.fact("limit", number_text(link_gbs(examined).value_or(gigabytes_per_second(copies))));
  return {match.saw("copies from pinned memory",
                    fmt::format("{} MB a step in {} ms", number_text(copies.bytes / 1e6), ms_text(copies.ms)),
                    "CUPTI")};
}

constexpr std::array kRules{
    Rule{"copies-pageable", pageable},
    Rule{"copies-blocking", blocking},
    Rule{"tensors-made-on-cpu", made_on_cpu},
    Rule{"copies-fill-the-bus", fill_the_bus},
};

}  // namespace

std::span<const Rule> copy_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
