#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullwatt/model/finding.hpp"
#include "fullwatt/model/selection.hpp"

/// The diagnosis for C++ programs: `find_package(fullwatt)`, link `fullwatt::core`. No torch, no CUDA toolkit.
namespace fullwatt::api {

using model::GpuStatus;

/// A problem in words: what it is, why, and what to do about it.
struct Problem {
  std::string id;
  model::Severity severity = model::Severity::info;
  std::string title;
  std::string cause;
  std::vector<std::string> remedy;    ///< steps in order
  std::vector<std::string> commands;  ///< the commands among them
};

/// Layer 1.
struct HardwareStatus {
  bool gpu_detected = false;
  std::vector<GpuStatus> gpus;
  std::string summary;
  std::vector<Problem> problems;
};

/// Layer 2.
struct DriverStatus {
  bool installed = false;
  bool working = false;
  std::string version;  ///< of the loaded kernel module
  std::string flavour;  ///< open or closed
  std::string summary;
  std::vector<Problem> problems;
};

/// Layer 3.
struct CudaStatus {
  bool working = false;
  std::string version;                ///< newest CUDA that the driver offers
  std::string library;                ///< the libcuda that is loaded
  std::vector<std::string> toolkits;  ///< versions of installed toolkits
  std::string summary;
  std::vector<Problem> problems;
};

/// Layer 4.
struct PyTorchStatus {
  bool installed = false;
  bool gpu_usable = false;
  std::string version;
  std::string cuda_version;  ///< that it was built for; empty for a CPU build
  std::string interpreter;
  std::string summary;
  std::vector<Problem> problems;
};

/// Layer 5: which GPU a training would and should use.
struct DeviceSelectionResult {
  std::optional<GpuStatus> selected;
  std::vector<GpuStatus> candidates;  ///< best first
  std::string reason;
  std::string environment;  ///< lines for a shell that select it
  std::vector<Problem> problems;
};

/// All five layers together.
struct GpuDiagnosticReport {
  HardwareStatus hardware;
  DriverStatus driver;
  CudaStatus cuda;
  PyTorchStatus pytorch;
  DeviceSelectionResult device_selection;
  std::optional<Problem> root_cause;
  std::string conclusion;  ///< one sentence
  std::string text;        ///< the whole report for a terminal without colours
  std::string json;        ///< docs/doctor.schema.json
};

struct DiagnosticOptions {
  std::string python;         ///< interpreter to ask; empty: active environment, then PATH
  std::string saved_machine;  ///< folder written by `fullwatt doctor --save`; empty: this machine
  std::string language = "en";
  bool wake_gpu = false;
  bool import_torch = true;
  /// The fullwatt program, in whose child processes the vendor libraries are loaded. Empty: FULLWATT_EXECUTABLE, the
  /// place of installation, then PATH.
  std::string executable;
};

/// Requirement D2. The machine is examined once, at the first question; `refresh` looks again.
class GpuDiagnosticTool {
 public:
  explicit GpuDiagnosticTool(DiagnosticOptions options = {});
  ~GpuDiagnosticTool();
  GpuDiagnosticTool(GpuDiagnosticTool&&) noexcept;
  GpuDiagnosticTool& operator=(GpuDiagnosticTool&&) noexcept;

  /// Throws std::runtime_error when a saved machine cannot be read; nothing else throws.
  HardwareStatus check_hardware_detection();
  DriverStatus check_nvidia_driver();
  CudaStatus check_cuda_installation();
  PyTorchStatus check_pytorch_gpu_support();
  DeviceSelectionResult diagnose_device_selection();
  GpuDiagnosticReport generate_gpu_diagnostic_report();
  void refresh();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fullwatt::api
