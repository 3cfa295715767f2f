#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace fullwatt::api {

/// What the driver told of a GPU over some time: the figures of nvidia-smi, ten times a second. Means, where nothing
/// else is said; what it does not tell is absent.
struct UtilizationMetrics {
  std::string gpu;     ///< its name; empty where there is none
  std::string reason;  ///< why there are no figures; empty where there are
  double seconds = 0;
  std::size_t looks = 0;
  std::optional<double> gpu_percent;  ///< of the time some kernel ran, over the driver's own last second or so
  std::optional<double> gpu_percent_peak;
  std::optional<double> memory_percent;  ///< of the time memory was read or written
  std::optional<double> power_w;
  std::optional<double> temperature_c;
  std::optional<double> sm_clock_mhz;
  std::optional<std::uint64_t> memory_used_bytes;  ///< of the card, by all processes, at the end
  std::optional<std::uint64_t> memory_used_bytes_peak;
};

}  // namespace fullwatt::api
