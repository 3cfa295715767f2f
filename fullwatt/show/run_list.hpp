#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/show/style.hpp"

namespace fullwatt::show {

/// One run among others.
struct RunRow {
  std::string id;
  std::string started;  ///< UTC, as in run.json
  std::string command;
  std::uint64_t steps = 0;
  std::optional<double> step_ms;
  std::string verdict;  ///< id of the first finding; empty when there is none
};

/// A table of runs in the order given, or how to start one.
std::string run_list(const std::vector<RunRow>& rows, const Style& style);

}  // namespace fullwatt::show
