#include <algorithm>
#include <stdexcept>

#include <gtest/gtest.h>

#include "fullwatt/api/gpu_diagnostic_tool.hpp"
#include "fullwatt/api/gpu_optimizer.hpp"

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

GpuOptimizer optimizer_for(const std::string& patient) {
  return GpuOptimizer({.saved_machine = std::string(FULLWATT_PATIENTS) + "/" + patient});
}

TEST(GpuOptimizerTest, ALaptopTrainsOnItsDiscreteGpuInBfloat16) {
  auto optimizer = optimizer_for("laptop-rtx4050-intel");
  const auto device = optimizer.optimize_device_selection();
  ASSERT_TRUE(device.gpu);
  EXPECT_TRUE(device.gpu->is_discrete);
  EXPECT_NE(device.environment.find(device.gpu->uuid), std::string::npos);
  const auto precision = optimizer.configure_mixed_precision();
  EXPECT_EQ(precision.dtype, "bfloat16");
  EXPECT_FALSE(precision.needs_scaler);
  EXPECT_TRUE(precision.tf32);
  const auto memory = optimizer.setup_memory_optimization();
  EXPECT_GT(memory.usable_bytes, 4ULL << 30U);
  EXPECT_LT(memory.usable_bytes, 6ULL << 30U);
  EXPECT_TRUE(memory.activation_checkpoints);
  EXPECT_FALSE(memory.cache_samples);
  const auto start = optimizer.starting_values(50'000);
  EXPECT_EQ(start.batch, 64);
  EXPECT_GE(start.workers, 1);
  EXPECT_NE(start.reason.find("RTX 4050"), std::string::npos);
}

TEST(GpuOptimizerTest, WithoutAGpuNothingIsPromised) {
  auto optimizer = optimizer_for("container-no-gpu-flag");
  EXPECT_FALSE(optimizer.optimize_device_selection().gpu);
  EXPECT_FALSE(optimizer.configure_mixed_precision().enabled);
  EXPECT_FALSE(optimizer.configure_mixed_precision().reason.empty());
  EXPECT_EQ(optimizer.setup_memory_optimization().usable_bytes, 0U);
}

TEST(GpuOptimizerTest, ABatchIsFoundByTrainingAndNoneIsTriedThatDoesNotFit) {
  constexpr std::uint64_t kCard = 6ULL << 30U;
  auto optimizer = optimizer_for("laptop-rtx4050-intel");
  const auto measure = [&](std::uint64_t batch) {
    const auto peak = (1ULL << 30U) + batch * (40ULL << 20U);
    EXPECT_LT(peak, kCard);
    return BatchMeasurement{batch, peak, static_cast<double>(batch) / (1.0 + 0.01 * static_cast<double>(batch))};
  };
  const auto found = optimizer.optimize_batch_size(measure, 8, kCard);
  EXPECT_GT(found.batch, 64U);
  EXPECT_NEAR(found.predicted_bytes, static_cast<double>((1ULL << 30U) + found.batch * (40ULL << 20U)), 1e7);
  EXPECT_GE(GpuOptimizer::optimize_batch_size(14ULL << 20U, kCard), 64U);
  EXPECT_EQ(GpuOptimizer::optimize_batch_size(8ULL << 30U, kCard), 0U);
  const auto kept = GpuOptimizer::keep_effective_batch(found, 4096);
  EXPECT_LE(kept.batch, found.batch);
  EXPECT_EQ(kept.batch * kept.accumulation, 4096U);
  EXPECT_EQ(GpuOptimizer::keep_effective_batch(found, 8).accumulation, 1U);
  const auto without_room = [&](std::uint64_t) { return BatchMeasurement{.ran_out = true}; };
  EXPECT_EQ(optimizer.optimize_batch_size(without_room, 8, kCard).batch, 0U);
  EXPECT_EQ(optimizer.optimize_batch_size(without_room, 8, kCard).reason, "there is no room for the batch as it is");
  const auto surprised = [&](std::uint64_t batch) {
    auto measured = measure(batch);
    measured.ran_out = batch > 20;
    return measured;
  };
  const auto smaller = optimizer.optimize_batch_size(surprised, 8, kCard);
  EXPECT_EQ(smaller.batch, 16U);
  EXPECT_TRUE(std::ranges::any_of(smaller.tried, &BatchMeasurement::ran_out));
}

}  // namespace
}  // namespace fullwatt::api
