#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fullwatt/base/reading.hpp"

namespace fullwatt::model {

using base::Reading;

/// One GPU as a place to train on (requirement S2).
struct GpuStatus {
  int device_id = -1;  ///< NVML index; -1 for a GPU that NVML does not list
  std::string device_name;
  std::string uuid;
  std::string bdf;
  bool is_discrete = false;
  bool is_available = false;
  Reading<std::uint64_t> memory_total_bytes;
  Reading<std::uint64_t> memory_free_bytes;
  std::string compute_capability;  ///< empty when unknown
  bool is_busy = false;
  bool is_selected = false;
  std::vector<std::string> reasons;  ///< why it was, or was not, taken

  static void fields(auto& self, auto&& visit) {
    visit("device_id", self.device_id);
    visit("device_name", self.device_name);
    visit("uuid", self.uuid);
    visit("bdf", self.bdf);
    visit("is_discrete", self.is_discrete);
    visit("is_available", self.is_available);
    visit("memory_total_bytes", self.memory_total_bytes);
    visit("memory_free_bytes", self.memory_free_bytes);
    visit("compute_capability", self.compute_capability);
    visit("is_busy", self.is_busy);
    visit("is_selected", self.is_selected);
    visit("reasons", self.reasons);
  }
};

/// Which GPU to train on, and why; every GPU of the machine, best first.
struct Selection {
  static constexpr int kSchemaVersion = 1;

  std::vector<GpuStatus> gpus;
  std::string reason;  ///< one sentence

  const GpuStatus* selected() const {
    for (const auto& gpu : gpus) {
      if (gpu.is_selected) return &gpu;
    }
    return nullptr;
  }
  static void fields(auto& self, auto&& visit) {
    visit("gpus", self.gpus);
    visit("reason", self.reason);
  }
};

}  // namespace fullwatt::model
