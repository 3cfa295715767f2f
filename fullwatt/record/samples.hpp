#pragma once

#include <string>
#include <vector>

#include "fullwatt/base/error.hpp"
#include "fullwatt/model/run.hpp"

namespace fullwatt::record {

/// The figures of GPUs and host over a whole run, in bounded space: when there are too many, every second one of
/// each GPU is dropped.
class Samples {
 public:
  static constexpr std::size_t kMost = 8192;  ///< of each kind; some 1.8 MB on the disk

  void add(const model::GpuSample& sample);
  void add(const model::PowerSample& sample);
  void add(const model::HostSample& sample);

  const std::vector<model::GpuSample>& gpu() const { return gpu_; }
  const std::vector<model::PowerSample>& power() const { return power_; }
  const std::vector<model::HostSample>& host() const { return host_; }

  /// Replaces the file as a whole: a reader sees the old one or the new one.
  base::Result<void> write(const std::string& path) const;
  static base::Result<Samples> read(const std::string& path);

 private:
  std::vector<model::GpuSample> gpu_;
  std::vector<model::PowerSample> power_;
  std::vector<model::HostSample> host_;
};

}  // namespace fullwatt::record
