// Asks every method of GpuDiagnosticTool and GpuOptimizer about a saved machine and prints what it answered.

#include <iostream>

#include "fullwatt/api/gpu_diagnostic_tool.hpp"
#include "fullwatt/api/gpu_optimizer.hpp"

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
  fullwatt::api::GpuOptimizer optimizer(options);
  const auto measure = [](std::uint64_t batch) {
    return fullwatt::api::BatchMeasurement{batch, batch << 20U, static_cast<double>(batch < 64 ? batch : 64)};
  };
  std::cout << "device: " << optimizer.optimize_device_selection().reason << "\n"
            << "precision: " << optimizer.configure_mixed_precision().dtype << "\n"
            << "memory: " << optimizer.setup_memory_optimization().reason << "\n"
            << "batch: " << optimizer.optimize_batch_size(measure, 8, 6ULL << 30U).batch << "\n";
  return report.json.empty() || report.text.empty() ? 1 : 0;
}
