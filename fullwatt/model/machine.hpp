#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fullwatt/model/cuda.hpp"
#include "fullwatt/model/driver.hpp"
#include "fullwatt/model/hardware.hpp"
#include "fullwatt/model/host.hpp"
#include "fullwatt/model/nvml.hpp"
#include "fullwatt/model/torch.hpp"

namespace fullwatt::model {

/// The names one NVIDIA GPU goes by. CUDA's order and NVML's differ; UUID and PCI address do not.
struct GpuIdentity {
  std::string bdf;
  std::string uuid;
  std::string name;
  std::optional<int> nvml_index;
  std::optional<int> cuda_ordinal;

  static void fields(auto& self, auto&& visit) {
    visit("bdf", self.bdf);
    visit("uuid", self.uuid);
    visit("name", self.name);
    visit("nvml_index", self.nvml_index);
    visit("cuda_ordinal", self.cuda_ordinal);
  }
};

/// A probe that did not do its work: it hung, crashed or was refused.
struct ProbeProblem {
  std::string probe;
  std::string what;

  static void fields(auto& self, auto&& visit) {
    visit("probe", self.probe);
    visit("what", self.what);
  }
};

/// The facts of the five layers. Probes fill it and never judge; rules judge and never probe.
struct Machine {
  static constexpr int kSchemaVersion = 1;

  Hardware hardware;
  Driver driver;
  Nvml nvml;
  Cuda cuda;
  Torch torch;
  Host host;
  std::optional<Process> process;               ///< the training asked about with --pid
  std::optional<std::vector<std::string>> log;  ///< the training output asked about with --log
  std::vector<GpuIdentity> gpus;
  std::vector<ProbeProblem> problems;

  const GpuIdentity* gpu_by_bdf(std::string_view bdf) const;
  const NvmlDevice* nvml_by_bdf(std::string_view bdf) const;
  const CudaDevice* cuda_by_bdf(std::string_view bdf) const;
  /// "NVIDIA H200 (0000:01:00.0)": what a report calls the GPU.
  std::string gpu_label(std::string_view bdf) const;
  /// The variable as the training would see it: of the process asked about, else of this shell.
  std::optional<std::string> variable(const std::string& name) const;

  static void fields(auto& self, auto&& visit) {
    visit("hardware", self.hardware);
    visit("driver", self.driver);
    visit("nvml", self.nvml);
    visit("cuda", self.cuda);
    visit("torch", self.torch);
    visit("host", self.host);
    visit("process", self.process);
    visit("log", self.log);
    visit("gpus", self.gpus);
    visit("problems", self.problems);
  }
};

}  // namespace fullwatt::model
