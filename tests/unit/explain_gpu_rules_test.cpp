#include "tests/support/trainings.hpp"
#include <gtest/gtest.h>

#include "fullwatt/explain/rules/rules.hpp"

// What the rules see in kernels, settings of PyTorch and its memory.
namespace fullwatt::explain {
namespace {

using namespace fullwatt::tests;  // NOLINT: the vocabulary of these tests
using model::Phase;

constexpr const char* kSgemm = "ampere_sgemm_128x64_tn";
constexpr const char* kElementwise =
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>";

/// The same settings with one changed.
Said with_setting(const std::string& settings) {
  Said said;
  said.settings = settings;
  return said;
}

/// A step whose forward and backward pass run this kernel.
RunBuilder of_kernel(const std::string& kernel, const Said& said = {}, double gpu_ms = 3) {
  auto script = forward(gpu_ms, kernel);
  return training(finish(script, gpu_ms, kernel), said);
}

TEST(LaunchRulesTest, ManyShortKernelsAreLaunchBound) {
  auto script = Script().data(12, 0.02).launches(400, 15, kConvolution, 0.004, 0.03);
  const auto finding = expect_found(training(finish(script, 0.004)), "launch-bound");
  EXPECT_GT(*finding.charged_ms, 8);
  EXPECT_GT(*finding.gain_ms, 0.3 * *finding.charged_ms);
  EXPECT_LT(*finding.gain_ms, 0.7 * *finding.charged_ms);
}

TEST(LaunchRulesTest, ATinyModelIsSaidToBeSmall) {
  auto script = Script().data(12, 0.02).launches(400, 15, kConvolution, 0.003, 0.03);
  Said said;
  said.model = R"("class":"LSTM","parameters":60000,"devices":{"cuda:0":60000})";
  EXPECT_EQ(expect_found(training(finish(script, 0.003), said), "small-work-no-gain").severity, model::Severity::note);
}

TEST(LaunchRulesTest, LaunchBlockingExplainsTheLaunches) {
  auto script = Script().data(12, 0.02).launches(400, 15, kConvolution, 0.004, 0.03);
  Said said;
  said.environment = R"("CUDA_LAUNCH_BLOCKING":"1")";
  const auto explanation = explain(training(finish(script, 0.004), said).build());
  expect_found(explanation, "launch-blocking-on");
  EXPECT_EQ(explanation.find("launch-bound"), nullptr);
}

TEST(LaunchRulesTest, ALoopOverParametersIsNamedByItsLine) {
  auto script = Script().data(12, 0.02).launches(8, 15, kConvolution, 0.01);
  finish(script, 0.01).launches(150, 22, kElementwise, 0.003, 0.04);
  auto builder = training(script);
  builder.run().source_facts = R"({"schema":1,"files":[{"path":"/home/ada/train.py","error":null,"functions":[],
    "loops":[{"line":10,"end_line":30,"function":"","depth":2,"ranges":0,"writes":[],"trains":true},
             {"line":21,"end_line":22,"function":"","depth":1,"ranges":0,"writes":[],"trains":false}]}]})";
  expect_not_found(builder, "ops-per-parameter");
  std::string source(20, '\n');
  builder.run().sources["/home/ada/train.py"] = source + "for p in model.parameters():\n    norms.append(p.norm())\n";
  const auto finding = expect_found(builder, "ops-per-parameter");
  EXPECT_EQ(finding.line, 22);
  EXPECT_GT(*finding.charged_ms, 4);
  EXPECT_GT(*finding.gain_ms, 0.5 * *finding.charged_ms);
  EXPECT_NEAR(std::stod(finding.facts.at("count")), 150, 10);
}

TEST(PrecisionRulesTest, UnalignedSizesAreFoundWhereKernelsDoNotTellThem) {
  auto builder = of_kernel("nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT");
  builder.fact(
      "flops",
      R"({"total":100,"by_op":{"mm":60,"addmm":40},"unaligned":[{"dtype":"bfloat16","flops":50,"sizes":"4096 x 768 x 50257"}]})");
  const auto finding = expect_found(builder, "dims-not-aligned");
  EXPECT_EQ(finding.facts.at("name"), "4096 x 768 x 50257");
  EXPECT_GT(*finding.gain_ms, 0);
  EXPECT_LT(*finding.gain_ms, *finding.charged_ms);
  auto whole = of_kernel("nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_TNT");
  whole.fact("flops", R"({"total":100,"by_op":{"mm":60,"addmm":40},"unaligned":[]})");
  expect_not_found(whole, "dims-not-aligned");
}

TEST(PrecisionRulesTest, Fp32ProductsWithoutTf32AreANote) {
  auto said = with_setting(R"("matmul.allow_tf32":false,"matmul.precision":"highest")");
  const auto finding = expect_found(of_kernel(kSgemm, said), "tf32-off");
  EXPECT_EQ(finding.severity, model::Severity::note);
  EXPECT_GT(*finding.gain_ms, 0.4 * *finding.charged_ms);
  EXPECT_LT(*finding.gain_ms, 0.7 * *finding.charged_ms);
  EXPECT_EQ(finding.facts.at("gpu"), "NVIDIA H200");
}

TEST(PrecisionRulesTest, ACardWhoseTf32IsNotFasterGainsNothing) {
  auto said = with_setting(R"("matmul.allow_tf32":false)");
  said.gpu =
      R"("index":0,"name":"NVIDIA GeForce RTX 4090","uuid":"22222222-aaaa-bbbb-cccc-000000000001","capability":"8.9")";
  said.device_check =
      R"("parameters":{"cuda:0":160},"inputs":{"cuda:0":1},"consistent":true,"uuid":"22222222-aaaa-bbbb-cccc-000000000001")";
  expect_not_found(of_kernel(kSgemm, said), "tf32-off");
}

TEST(PrecisionRulesTest, ConvolutionsWithTf32SwitchedOffAreAWarning) {
  const auto said = with_setting(R"("cudnn.allow_tf32":false,"cudnn.benchmark":true)");
  const auto finding = expect_found(of_kernel("ampere_scudnn_128x64_relu_interior_nn_v1", said), "cudnn-tf32-off");
  EXPECT_EQ(finding.severity, model::Severity::warning);
}

TEST(PrecisionRulesTest, WithoutAutocastMixedPrecisionIsOffered) {
  Said said;
  said.autocast = "";
  const auto finding = expect_found(of_kernel(kSgemm, said), "mixed-precision-off");
  EXPECT_EQ(finding.facts.at("dtype"), "fp32");
  EXPECT_EQ(finding.facts.at("expected"), "bf16");
  expect_not_found(of_kernel(kSgemm), "mixed-precision-off");
}

TEST(PrecisionRulesTest, Float16NeedsAScaler) {
  Said said;
  said.autocast =
      R"("device":"cuda","dtype":"torch.float16","enabled":true,"site":{"file":"/home/ada/train.py","line":15,"function":"train"})";
  EXPECT_EQ(expect_found(of_kernel(kConvolution, said), "fp16-without-scaler").line, 15);
  auto scaled = of_kernel(kConvolution, said);
  scaled.fact("scaler", R"({"enabled":true})");
  expect_not_found(scaled, "fp16-without-scaler");
  expect_not_found(of_kernel(kConvolution), "fp16-without-scaler");
}

TEST(PrecisionRulesTest, Bfloat16OnAnOldCardIsEmulated) {
  Said said;
  said.gpu = R"("index":0,"name":"Tesla T4","uuid":"33333333-aaaa-bbbb-cccc-000000000001","capability":"7.5")";
  EXPECT_EQ(expect_found(of_kernel(kSgemm, said), "bf16-without-hardware").facts.at("value"), "7.5");
}

TEST(PrecisionRulesTest, DoublesAndUnalignedSizesAreFoundByTheirKernels) {
  const auto doubles = expect_found(
      of_kernel("void cutlass::Kernel<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>"), "float64-in-step");
  EXPECT_GT(*doubles.gain_ms, 10);
  const auto odd =
      expect_found(of_kernel("void cutlass::Kernel<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_32x6_tn_align1>"),
                   "dims-not-aligned");
  EXPECT_EQ(odd.facts.at("dtype"), "bf16");
  expect_not_found(of_kernel("void cutlass::Kernel<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_32x6_tn_align8>"),
                   "dims-not-aligned");
}

TEST(ConvolutionRulesTest, LayoutChangesArePriced) {
  auto script = forward(3).launches(8, 15, "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, float>", 0.6);
  const auto finding = expect_found(training(finish(script)), "conv-layout-nchw");
  EXPECT_NEAR(*finding.charged_ms, 4.8, 0.5);
  EXPECT_EQ(finding.facts.at("count"), "8");
}

TEST(ConvolutionRulesTest, SettingsOfCudnnArePricedByTheConvolutions) {
  const auto off =
      expect_found(of_kernel(kConvolution, with_setting(R"("cudnn.benchmark":false)")), "cudnn-benchmark-off");
  EXPECT_EQ(off.facts.at("value"), "64×3×224×224");
  EXPECT_NEAR(*off.gain_ms, 0.05 * *off.charged_ms, 0.5);
  expect_found(of_kernel(kConvolution, with_setting(R"("cudnn.enabled":false)")), "cudnn-off");
  expect_found(of_kernel(kConvolution, with_setting(R"("cudnn.deterministic":true,"cudnn.benchmark":false)")),
               "deterministic-left-on");
}

TEST(ConvolutionRulesTest, BenchmarkingChangingShapesShowsInLongSteps) {
  RunBuilder builder;
  say(builder, {});
  auto searching = forward().library(15, 400);
  finish(searching);
  for (int i = 0; i < 10; ++i)
    builder.samples_per_step(40 + static_cast<std::uint64_t>(i)).plain(healthy_script(), 9).plain(searching, 1);
  builder.times(healthy_script(), 10).causes(healthy_script(), 10);
  EXPECT_EQ(expect_found(builder, "cudnn-benchmark-thrashes").facts.at("value"), "10");
}

TEST(KernelRulesTest, ElementwiseWorkIsOfferedToTheCompiler) {
  auto script = forward(1).launches(60, 16, kElementwise, 0.5);
  const auto finding = expect_found(training(finish(script, 1)), "elementwise-heavy");
  EXPECT_NEAR(*finding.charged_ms, 30, 2);
  auto compiled = training(finish(script, 1));
  compiled.fact("compile_stats", R"({"frames":3,"recompiles":0,"graph_breaks":{}})");
  expect_not_found(compiled, "elementwise-heavy");
}

TEST(KernelRulesTest, PlainAttentionIsFoundByItsCallsAndItsSoftmax) {
  auto script = forward(1).launches(8, 16, "void softmax_warp_forward<c10::BFloat16, 10>", 2);
  auto builder = training(finish(script, 1));
  expect_not_found(builder, "attention-slow");
  builder.fact("attention", R"({"backend":{"math":12,"flash":0}})");
  EXPECT_EQ(expect_found(builder, "attention-slow").facts.at("count"), "12");
}

TEST(KernelRulesTest, FillsOfGradientsAreFoundWithTheCallThatAsksForThem) {
  auto script =
      forward(1).launches(160, 21, "void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>", 0.02);
  auto builder = training(finish(script, 1));
  builder.run().source_facts = R"({"files":[{"path":"/home/ada/train.py","calls":[
    {"name":"optimizer.zero_grad","line":21,"function":"train","keywords":{"set_to_none":"False"},"in_loop":true}]}]})";
  EXPECT_EQ(expect_found(builder, "zero-grad-fills").line, 21);
}

TEST(KernelRulesTest, AdditionsToGradientsAreFoundBesideTheirFills) {
  const auto gain = [](int gradients, int additions) {
    constexpr const char* kAdd = "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>";
    auto script = forward(0.1);
    script.begin(Phase::backward, 18).launches(additions, 18, kAdd, 0.01, 0.03).end();
    script.launches(1, 21, "void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>", 0.02, 0.03);
    Said said;
    said.optimizer = R"("class":"AdamW","fused":true,"tensors":)" + std::to_string(gradients);
    auto builder = training(script.sync(20), said);
    builder.run().source_facts = R"({"files":[{"path":"/home/ada/train.py","calls":[
      {"name":"optimizer.zero_grad","line":21,"function":"train","keywords":{"set_to_none":"False"},"in_loop":true}]}]})";
    return *expect_found(builder, "zero-grad-fills").gain_ms;
  };
  EXPECT_NEAR(gain(20, 100), 20 * 0.03, 0.15) << "other additions of the backward pass stay";
  EXPECT_NEAR(gain(50, 100), 50 * 0.03, 0.15);
}

/// A step with `launches` kernels in the optimiser's phase.
RunBuilder optimizing(int launches, const std::string& optimizer, const std::string& kernel = kFusedAdam) {
  auto script = forward(0.1);
  script.begin(Phase::backward, 18).launches(8, 18, kConvolution, 0.1).end();
  script.begin(Phase::optimizer, 19).launches(launches, 19, kernel, 0.01, 0.03).end();
  Said said;
  said.optimizer = optimizer;
  return training(script.sync(20), said);
}

TEST(OptimizerRulesTest, AnUnfusedOptimizerIsANote) {
  const auto finding = expect_found(optimizing(200, R"("class":"AdamW","tensors":160)"), "optimizer-unfused");
  EXPECT_EQ(finding.severity, model::Severity::note);
  EXPECT_EQ(finding.line, 9);
  EXPECT_NEAR(std::stod(finding.facts.at("kernels")), 200, 10);
  expect_not_found(optimizing(200, R"("class":"AdamW","fused":true,"tensors":160)"), "optimizer-unfused");
}

TEST(OptimizerRulesTest, OneTensorAfterTheOtherIsAWarning) {
  const auto explanation =
      explain(optimizing(900, R"("class":"Adam","foreach":false,"tensors":160)", kElementwise).build());
  expect_found(explanation, "optimizer-single-tensor");
  EXPECT_EQ(explanation.find("optimizer-unfused"), nullptr);
  EXPECT_EQ(explanation.find("optimizer-single-tensor")->facts.at("count"), "160");
  expect_found(optimizing(900, R"("class":"MyLion","tensors":160)", kElementwise), "optimizer-single-tensor");
  expect_not_found(optimizing(900, R"("class":"RAdam","of_torch":true,"tensors":160)", kElementwise),
                   "optimizer-single-tensor");
}

TEST(OptimizerRulesTest, AStepThatIsMostlyOptimizerIsOfferedAccumulation) {
  EXPECT_EQ(expect_found(optimizing(400, R"("class":"AdamW","tensors":160)"), "accumulation-off").severity,
            model::Severity::info);
}

TEST(CompileRulesTest, RecompilationsAreChargedWithTheirTime) {
  RunBuilder builder;
  say(builder, {});
  auto compiling = forward().begin(Phase::compile, 15).library(15, 500).end();
  finish(compiling);
  builder.plain(healthy_script(), 40).flagged(compiling, 5, record::kCompiled).plain(healthy_script(), 40);
  builder.times(healthy_script(), 10).causes(healthy_script(), 10);
  builder.fact("compile", R"({"site":{"file":"/home/ada/train.py","line":7,"function":"main"},"target":"ResNet"})");
  builder.fact("compile_stats", R"({"frames":3,"recompiles":5,"graph_breaks":{},"seconds":3.5})");
  const auto finding = expect_found(builder, "compile-recompiles");
  EXPECT_EQ(finding.line, 7);
  EXPECT_NEAR(*finding.gain_ms, 5 * 500 / 105.0, 3);
}

TEST(CompileRulesTest, GraphBreaksCostWhatLaunchingStillCosts) {
  auto script = Script().data(12, 0.02).launches(400, 15, kConvolution, 0.004, 0.03);
  auto builder = training(finish(script, 0.004));
  builder.fact("compile_stats", R"({"frames":9,"recompiles":0,"graph_breaks":{"call to print":7,"Tensor.item":1}})");
  const auto finding = expect_found(builder, "compile-graph-breaks");
  EXPECT_EQ(finding.facts.at("count"), "8");
  EXPECT_EQ(finding.facts.at("value"), "call to print");
}

TEST(CompileRulesTest, ACompiledObjectThatNobodyCallsIsNamed) {
  auto builder = of_kernel(kConvolution);
  builder.fact("compile", R"({"site":{"file":"/home/ada/train.py","line":7,"function":"main"},"target":"ResNet"})");
  builder.fact("compile_stats", R"({"frames":0,"recompiles":0,"graph_breaks":{}})");
  EXPECT_EQ(expect_found(builder, "compile-unused").line, 7);
}

TEST(MemoryRulesTest, AllocatingInEveryStepIsPricedAndItsReasonNamed) {
  auto script =
      forward(1).sync(15).call(16, "cudaMalloc", 30).call(16, "cudaFree", 10).launches(8, 17, kConvolution, 1);
  auto builder = training(finish(script, 1));
  const auto churn = expect_found(builder, "allocator-churn");
  EXPECT_EQ(churn.line, 16);
  EXPECT_NEAR(*churn.charged_ms, 40, 4);
  builder.run().source_facts =
      R"({"files":[{"path":"/home/ada/train.py","uses":[{"what":"empty_cache","line":22,"in_loop":true}]}]})";
  EXPECT_EQ(expect_found(builder, "empty-cache-in-loop").line, 22);
  expect_not_found(builder, "allocator-churn");
}

TEST(MemoryRulesTest, TheCacheSwitchedOffExplainsTheAllocations) {
  auto script = forward(1).sync(15).call(16, "cudaMalloc", 5).launches(8, 17, kConvolution, 1);
  Said said;
  said.environment = R"("PYTORCH_NO_CUDA_MEMORY_CACHING":"1")";
  const auto builder = training(finish(script, 1), said);
  expect_found(builder, "allocator-caching-off");
  expect_not_found(builder, "allocator-churn");
}

TEST(MemoryRulesTest, RetriesAndFragmentationComeFromTheAllocator) {
  Said said;
  said.memory =
      R"("device":"cuda:0","peak_allocated_bytes":80000000000,"peak_reserved_bytes":145000000000,"retries":7,"oom":1)";
  const auto builder = of_kernel(kConvolution, said);
  EXPECT_EQ(expect_found(builder, "allocator-retries").facts.at("count"), "7");
  EXPECT_EQ(expect_found(builder, "vram-fragmentation").severity, model::Severity::error);
}

}  // namespace
}  // namespace fullwatt::explain
