#include <stdexcept>

#include <gtest/gtest.h>

#include "fullwatt/api/gpu_diagnostic_tool.hpp"

namespace fullwatt::api {
namespace {

GpuDiagnosticTool tool_for(const std::string& patient, const std::string& language = "en") {
  DiagnosticOptions options;
  options.saved_machine = std::string(FULLWATT_PATIENTS) + "/" + patient;
  options.language = language;
  return GpuDiagnosticTool(options);
}

TEST(GpuDiagnosticToolTest, AHealthyMachineWorksInEveryLayer) {
  auto tool = tool_for("laptop-rtx4050-intel");
  EXPECT_TRUE(tool.check_hardware_detection().gpu_detected);
  EXPECT_TRUE(tool.check_nvidia_driver().working);
  EXPECT_EQ(tool.check_nvidia_driver().version, "580.95.05");
  EXPECT_TRUE(tool.check_cuda_installation().working);
  EXPECT_EQ(tool.check_cuda_installation().version, "13.0");
  EXPECT_TRUE(tool.check_pytorch_gpu_support().gpu_usable);
  EXPECT_TRUE(tool.check_hardware_detection().problems.empty());
}

TEST(GpuDiagnosticToolTest, TheDiscreteGpuIsSelected) {
  auto tool = tool_for("laptop-rtx4050-intel");
  const auto result = tool.diagnose_device_selection();
  EXPECT_FALSE(
      result.candidates.empty());  // the selection belongs to the same examination, whichever question comes first
  ASSERT_TRUE(result.selected);
  EXPECT_TRUE(result.selected->is_discrete);
  EXPECT_NE(result.environment.find(result.selected->uuid), std::string::npos);
}

TEST(GpuDiagnosticToolTest, TheReportJoinsAllLayers) {
  const auto report = tool_for("laptop-rtx4050-intel").generate_gpu_diagnostic_report();
  EXPECT_FALSE(report.root_cause);
  EXPECT_FALSE(report.conclusion.empty());
  EXPECT_FALSE(report.text.empty());
  EXPECT_EQ(report.text.find('\x1b'), std::string::npos);
  EXPECT_EQ(report.json.front(), '{');
}

TEST(GpuDiagnosticToolTest, TheLanguageCanBeChosen) {
  EXPECT_NE(tool_for("laptop-rtx4050-intel", "zh").generate_gpu_diagnostic_report().conclusion,
            tool_for("laptop-rtx4050-intel", "en").generate_gpu_diagnostic_report().conclusion);
}

TEST(GpuDiagnosticToolTest, AfterARefreshTheMachineIsExaminedAgain) {
  auto tool = tool_for("laptop-rtx4050-intel");
  const auto before = tool.check_nvidia_driver().summary;
  tool.refresh();
  EXPECT_EQ(tool.check_nvidia_driver().summary, before);
}

TEST(GpuDiagnosticToolTest, AFolderThatIsNoMachineThrows) {
  EXPECT_THROW(tool_for("no-such-patient").check_hardware_detection(), std::runtime_error);
}

}  // namespace
}  // namespace fullwatt::api
