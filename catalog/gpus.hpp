#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

/// What GPUs can do, from gpus.yaml. All peaks are dense, in TFLOP/s (int8 in TOP/s); 0 means that the card has no such
/// path.
namespace fullwatt::catalog {

struct Peaks {
  double fp32 = 0;
  double tf32 = 0;
  double fp16 = 0;       ///< with fp32 accumulation, as PyTorch asks for it
  double fp16_fp16 = 0;  ///< with fp16 accumulation
  double bf16 = 0;
  double fp8 = 0;
  double int8 = 0;
};

/// FLOP of one multiprocessor in one clock: a row of the reference's rate table.
struct GpuRate {
  std::string_view
      rate_class;  ///< compute capability and a letter where cards of it differ: 8.6g GeForce, 8.6p professional
  int cores = 0;   ///< of a multiprocessor
  Peaks flop;
};

/// One card, or several of the same name.
struct GpuCard {
  std::string_view pattern;  ///< regular expression (ECMAScript) of NVML's name, to match as a whole
  std::string_view card;
  std::string_view segment;  ///< datacentre, desktop, laptop, workstation, embedded
  std::string_view compute_capability;
  std::string_view rate_class;
  int multiprocessors = 0;
  int boost_mhz = 0;
  int tensor_mhz = 0;  ///< clock behind the tensor peaks where it differs, else 0
  double memory_gb = 0;
  double bandwidth_gbs = 0;
  double power_w = 0;  ///< default limit
  Peaks peaks;
  std::string_view sources;
  std::string_view confidence;  ///< published, computed, uncertain
  std::string_view note;
};
std::span<const GpuCard> gpu_cards();
std::span<const GpuRate> gpu_rates();

/// What is known of a GPU beside its name. Nothing is required.
struct GpuTraits {
  std::string compute_capability;  ///< "9.0"
  std::optional<int> multiprocessors;
  std::optional<double> memory_gb;
  std::optional<int> boost_mhz;  ///< for cards the table lacks
};

struct GpuPeaks {
  std::string card;
  std::string compute_capability;
  Peaks peaks;
  std::optional<double> bandwidth_gbs;
  std::optional<double> power_w;
  std::optional<double> memory_gb;
  bool estimated = false;  ///< by rate and clock, the card is not in the table
  std::string source;      ///< for a report's footnote

  /// The peak for a precision as kernels name it: fp32, tf32, fp16, bf16, fp8, int8; nothing when the card has none.
  std::optional<double> peak(std::string_view precision) const;
};
/// By marketing name; several rows of one name are told apart by multiprocessors, then memory. A card that is not in
/// the table is estimated where its rate class is known; nothing where it is not.
std::optional<GpuPeaks> gpu_peaks(std::string_view name, const GpuTraits& traits = {});

/// GB/s that a PCIe link carries in one direction after encoding; 0 for an unknown generation.
double pcie_gbs(int generation, int lanes);

}  // namespace fullwatt::catalog
