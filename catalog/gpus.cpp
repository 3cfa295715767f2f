#include "catalog/gpus.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <regex>
#include <vector>

#include "catalog/tables.hpp"

#include "fullwatt/base/text.hpp"

namespace fullwatt::catalog {
namespace {

/// CUDA names a slice after its card: "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
std::string_view without_slice(std::string_view name) {
  return name.substr(0, name.find(" MIG "));
}

std::vector<const GpuCard*> rows_named(std::string_view name) {
  std::vector<const GpuCard*> rows;
  for (const auto& card : gpu_cards()) {
    const std::regex pattern(card.pattern.begin(), card.pattern.end());
    if (std::regex_match(name.begin(), name.end(), pattern)) rows.push_back(&card);
  }
  return rows;
}

/// One name, several chips: the nearest in multiprocessors, then in memory.
const GpuCard* nearest_row(const std::vector<const GpuCard*>& rows, const GpuTraits& traits) {
  const auto distance = [&](const GpuCard* card) {
    const int cores = traits.multiprocessors ? std::abs(*traits.multiprocessors - card->multiprocessors) : 0;
    const double memory = traits.memory_gb ? std::abs(*traits.memory_gb - card->memory_gb) : 0;
    return std::pair(cores, memory);
  };
  return *std::ranges::min_element(rows, {}, distance);
}

Peaks scaled(const Peaks& peaks, double fp32, double tensor) {
  return {.fp32 = peaks.fp32 * fp32,
          .tf32 = peaks.tf32 * tensor,
          .fp16 = peaks.fp16 * tensor,
          .fp16_fp16 = peaks.fp16_fp16 * tensor,
          .bf16 = peaks.bf16 * tensor,
          .fp8 = peaks.fp8 * tensor,
          .int8 = peaks.int8 * tensor};
}

GpuPeaks from_table(const GpuCard& card, std::string_view name, const GpuTraits& traits) {
  GpuPeaks found{.card = std::string(card.card),
                 .compute_capability = std::string(card.compute_capability),
                 .peaks = card.peaks,
                 .bandwidth_gbs = card.bandwidth_gbs,
                 .power_w = card.power_w,
                 .memory_gb = card.memory_gb,
                 .estimated = false,
                 .source = std::string(card.sources)};
  if (name != without_slice(name) && traits.multiprocessors && *traits.multiprocessors < card.multiprocessors) {
    const double share = static_cast<double>(*traits.multiprocessors) / card.multiprocessors;
    found.peaks = scaled(card.peaks, share, share);
    found.bandwidth_gbs = std::nullopt;
  }
  return found;
}

/// Turing without tensor cores, by name: the capability does not tell.
bool lacks_tensor_cores(std::string_view name) {
  constexpr std::array<std::string_view, 11> kParts{"GTX 16", "MX450", "MX550", "T400",  "T500",        "T550",
                                                    "T600",   "T1000", "T1200", "T2000", "Quadro T1000"};
  return std::ranges::any_of(kParts, [&](std::string_view part) { return base::contains(name, part); });
}

/// Export and mining cards carry limits that nothing shows, and the class of professional laptop GPUs is not settled.
bool may_be_estimated(std::string_view name) {
  const bool geforce = base::contains(name, "GeForce");
  if (base::contains(name, "Laptop") && !geforce) return false;
  constexpr std::array<std::string_view, 5> kLimited{"H20", " D", "CMP", "6000D", "H800"};
  return std::ranges::none_of(kLimited, [&](std::string_view part) {
    return part == " D" ? name.ends_with(part) : base::contains(name, part);
  });
}

const GpuRate* rate_of(std::string_view name, const std::string& capability) {
  const auto letter = capability == "7.5" && lacks_tensor_cores(name) ? "n"
                      : base::contains(name, "GeForce")               ? "g"
                                                                      : "p";
  for (const auto& wanted : {capability, capability + letter}) {
    const auto at = std::ranges::find(gpu_rates(), wanted, &GpuRate::rate_class);
    if (at != gpu_rates().end()) return &*at;
  }
  return nullptr;
}

/// Hopper and data-centre Blackwell publish their tensor peaks at a clock below the one that NVML shows.
double tensor_clock_share(const std::string& capability) {
  if (capability == "9.0") return 0.924;
  return capability.starts_with("10.") ? 0.94 : 1;
}

std::optional<GpuPeaks> estimate(std::string_view name, const GpuTraits& traits) {
  if (!traits.multiprocessors || !traits.boost_mhz || !may_be_estimated(name)) return std::nullopt;
  const auto* rate = rate_of(name, traits.compute_capability);
  if (rate == nullptr) return std::nullopt;
  const double clocks = static_cast<double>(*traits.multiprocessors) * *traits.boost_mhz / 1e6;
  GpuPeaks found;
  found.card = std::string(name);
  found.compute_capability = traits.compute_capability;
  found.peaks = scaled(rate->flop, clocks, clocks * tensor_clock_share(traits.compute_capability));
  found.memory_gb = traits.memory_gb;
  found.estimated = true;
  found.source = "estimated: operations a clock × multiprocessors × clock";
  return found;
}

}  // namespace

std::span<const GpuCard> gpu_cards() {
  return tables().gpu_cards;
}

std::span<const GpuRate> gpu_rates() {
  return tables().gpu_rates;
}

std::optional<double> GpuPeaks::peak(std::string_view precision) const {
  constexpr std::pair<std::string_view, double Peaks::*> kPrecisions[] = {
      {"fp32", &Peaks::fp32}, {"tf32", &Peaks::tf32}, {"fp16", &Peaks::fp16},
      {"bf16", &Peaks::bf16}, {"fp8", &Peaks::fp8},   {"int8", &Peaks::int8}};
  for (const auto& [name, member] : kPrecisions) {
    if (name == precision && peaks.*member > 0) return peaks.*member;
  }
  return std::nullopt;
}

std::optional<GpuPeaks> gpu_peaks(std::string_view name, const GpuTraits& traits) {
  const auto rows = rows_named(without_slice(name));
  return rows.empty() ? estimate(name, traits) : from_table(*nearest_row(rows, traits), name, traits);
}

double pcie_gbs(int generation, int lanes) {
  // GT/s of a lane; 8b/10b encoding up to generation 2, 128b/130b to 5, flits of 242 in 256 bytes from 6 on.
  constexpr std::array<double, 7> kLaneGbs{0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
  if (generation < 1 || generation >= static_cast<int>(kLaneGbs.size()) || lanes < 1) return 0;
  return kLaneGbs[static_cast<std::size_t>(generation)] * lanes;
}

}  // namespace fullwatt::catalog
