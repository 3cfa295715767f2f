// Asks every method of GpuDiagnosticTool about a saved machine and prints what it answered.

#include <iostream>

#include "fullwatt/api/gpu_diagnostic_tool.hpp"

int main(int argc, char** argv) {
  fullwatt::api::DiagnosticOptions options;
  if (argc > 1) options.saved_machine = argv[1];
  fullwatt::api::GpuDiagnosticTool tool(options);
  std::cout << "hardware: " << tool.check_hardware_detection().summary << "\n"
            << "driver: " << tool.check_nvidia_driver().version << "\n"
            << "cuda: " << tool.check_cuda_installation().version << "\n"
            << "pytorch: " << tool.check_pytorch_gpu_support().version << "\n";
  const auto selection = tool.diagnose_device_selection();
  std::cout << "selected: " << (selection.selected ? selection.selected->device_name : "none") << "\n";
  const auto report = tool.generate_gpu_diagnostic_report();
  std::cout << "root cause: " << (report.root_cause ? report.root_cause->id : "none") << "\n"
            << report.conclusion << "\n";
  return report.json.empty() || report.text.empty() ? 1 : 0;
}
