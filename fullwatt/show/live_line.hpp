#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "catalog/catalog.hpp"

namespace fullwatt::show {

/// What is known of a training while it runs; what is not known is left out of the line.
struct LiveStatus {
  std::uint64_t step = 0;
  std::optional<double> step_ms;
  std::optional<double> samples_per_second;
  std::optional<double> gpu_busy;  ///< 0 to 1
  std::optional<double> power_w;
  std::optional<double> power_limit_w;
  std::string top_cause;  ///< id of a cause; empty before the first verdict
  std::optional<double> top_cause_ms;
  double elapsed_s = 0;
  std::string note;  ///< such as why nothing is seen yet
  catalog::Language language = catalog::Language::en;
};

/// One line without its end, at most `columns` wide: the least important parts go first.
std::string live_line(const LiveStatus& status, int columns, bool ascii);

}  // namespace fullwatt::show
