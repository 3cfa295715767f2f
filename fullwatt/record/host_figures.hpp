#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullwatt/base/files.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::record {

/// A process and all its descendants, as far as /proc tells them.
std::vector<int> process_tree(base::Files& files, int root);

/// Reads the host's figures; each sample covers the time since the one before.
class HostFigures {
 public:
  explicit HostFigures(base::Files& files) : files_(files) {}

  /// `tree` are the training's processes.
  model::HostSample sample(std::uint64_t now_ns, const std::vector<int>& tree);

 private:
  struct Counters {
    std::uint64_t at_ns = 0;
    double busy_ticks = 0;
    double stolen_ticks = 0;
    double iowait_ticks = 0;
    double training_ticks = 0;
    double pressure_us = 0;
    double throttled_us = 0;
    double swap_in_pages = 0;
    double disk_sectors = 0;
  };

  Counters read(std::uint64_t now_ns, const std::vector<int>& tree, model::HostSample& sample) const;
  void read_memory(model::HostSample& sample) const;

  base::Files& files_;
  Counters last_;
};

}  // namespace fullwatt::record
