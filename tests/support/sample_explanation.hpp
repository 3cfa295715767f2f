#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/support/sample_sources.hpp"

#include "fullwatt/model/explanation.hpp"

/// Explanations as `explain` makes them, for tests and pictures of reports.
namespace fullwatt::tests {

inline model::LineCost sample_line(const std::string& file, int line, const std::string& function, double ms,
                                   const std::string& what) {
  return {{file, line, function}, ms, what};
}

inline model::Finding sample_finding(const std::string& id, model::Layer layer, model::Severity severity,
                                     double gain_ms, std::map<std::string, std::string> facts,
                                     std::vector<model::Evidence> evidence) {
  model::Finding finding{.id = id, .layer = layer, .severity = severity, .confidence = model::Confidence::certain};
  if (gain_ms > 0) finding.gain_ms = gain_ms;
  finding.facts = std::move(facts);
  finding.evidence = std::move(evidence);
  return finding;
}

inline model::RunInfo sample_run_info() {
  model::RunInfo info;
  info.id = "20261115-162000-3f9c";
  info.command = {"python", "train.py", "--config", "keypoints.yaml", "--epochs", "20"};
  info.folder = "/home/ada/captcha";
  info.version = "0.1.0";
  info.started = "2026-11-15T16:20:00Z";
  info.seconds = 272.4;
  info.exit_code = 0;
  info.git_commit = "4be1c02d9a7d1b6f0f4c8e21";
  info.git_dirty = true;
  info.gpus = {{0, "GPU-5b1c7e0a-22aa-4c36-8d2f-0d7a55e1c201", "NVIDIA H200", "0000:18:00.0", true}};
  info.price_per_kwh = 0.31;
  info.currency = "EUR";
  return info;
}

inline std::vector<model::Cause> sample_causes() {
  const auto& script = kSampleScript;
  std::vector<model::Cause> causes{
      {"data-wait", false, true, 7.31, 6.42, 6.42, {sample_line(script, 53, "train_epoch", 7.31, "data-wait")}},
      {"gpu-convolution", true, true, 3.94, std::nullopt, std::nullopt, {}},
      {"python",
       false,
       true,
       3.42,
       3.42,
       3.31,
       {sample_line(kSampleTargets, 19, "make_targets", 2.06, "python"),
        sample_line(kSampleTargets, 18, "make_targets", 0.97, "python"),
        sample_line(kSampleTargets, 20, "make_targets", 0.39, "python")}},
      {"gpu-elementwise", true, true, 1.92, std::nullopt, std::nullopt, {}},
      {"launch-bound",
       false,
       true,
       1.28,
       1.05,
       0.71,
       {sample_line(script, 62, "train_epoch", 0.74, "launch-bound"),
        sample_line(script, 58, "train_epoch", 0.54, "launch-bound")}},
      {"sync-drain", false, true, 1.02, 0.92, 0.63, {sample_line(script, 64, "train_epoch", 1.02, "sync-drain")}},
      {"gpu-normalisation", true, true, 0.88, std::nullopt, std::nullopt, {}},
      {"copy-wait", false, true, 0.55, 0.41, 0.22, {sample_line(script, 54, "train_epoch", 0.55, "copy-wait")}},
      {"gpu-copy-h2d", true, true, 0.43, std::nullopt, std::nullopt, {}},
      {"gpu-optimizer", true, true, 0.41, 0.29, 0.29, {}},
      {"unexplained", false, false, 0.24, std::nullopt, std::nullopt, {}},
  };
  return causes;
}

inline std::vector<model::LineCost> sample_lines() {
  std::vector<model::LineCost> lines;
  for (const auto& cause : sample_causes()) lines.insert(lines.end(), cause.lines.begin(), cause.lines.end());
  lines.push_back(sample_line(kSampleScript, 63, "train_epoch", 0.31, "launch-bound"));
  lines.push_back(sample_line(kSampleScript, 56, "train_epoch", 0.12, "copy-wait"));
  return lines;
}

inline std::vector<model::Finding> sample_findings() {
  using model::Layer;
  using model::Severity;
  std::vector<model::Finding> findings{
      sample_finding("loader-workers-zero", Layer::application, Severity::warning, 6.42, {},
                     {{"num_workers", "0", "train.py:39"},
                      {"wait for data", "7.31 ms of each step", "12,380 steps"},
                      {"CPU of the training", "1.02 of 24 CPUs", "/proc"}}),
      sample_finding("targets-recomputed", Layer::application, Severity::warning, 3.42,
                     {{"function", "make_targets"},
                      {"ms", "3.4"},
                      {"place", "targets.py:19"},
                      {"count", "4"},
                      {"name", "heat"},
                      {"share", "16"}},
                     {{"line samples", "412 of 433 in make_targets", "windows of 20 steps"},
                      {"GPU", "idle meanwhile", "kernel records"}}),
      sample_finding(
          "mixed-precision-off", Layer::pytorch, Severity::note, 2.6,
          {{"dtype", "float32"}, {"gpu", "NVIDIA H200"}, {"expected", "bfloat16"}, {"ms", "4.02"}, {"value", "14"}},
          {{"convolution kernels", "fp32, 3.94 ms of each step", "kernel names"}}),
      sample_finding("launch-bound", Layer::application, Severity::warning, 1.05,
                     {{"ms", "1.28"}, {"kernels", "328"}, {"value", "23"}, {"share", "6"}},
                     {{"kernels", "328 of each step, 23 µs on average", "kernel records"}}),
      sample_finding(
          "sync-each-step", Layer::application, Severity::warning, 0.92,
          {{"place", "train.py:64"}, {"ms", "1.02"}, {"value", "loss.item()"}, {"count", "1"}, {"share", "5"}},
          {{"cudaStreamSynchronize", "1 of each step", "train.py:64"}}),
      sample_finding("copies-pageable", Layer::application, Severity::warning, 0.41,
                     {{"ms", "0.55"}, {"count", "31.5"}, {"value", "7.4"}},
                     {{"copies to the GPU", "4 of each step, 31.5 MB, pageable", "copy records"}}),
      sample_finding("config-workers-ignored", Layer::application, Severity::warning, 0,
                     {{"value", "24"},
                      {"expected", "0"},
                      {"variable", "data.workers"},
                      {"path", "keypoints.yaml:7"},
                      {"place", "train.py:39"}},
                     {{"data.workers", "24", "keypoints.yaml:7"}, {"num_workers", "0", "train.py:39"}}),
      sample_finding("cudnn-benchmark-off", Layer::pytorch, Severity::note, 0,
                     {{"ms", "3.94"}, {"value", "64 × 3 × 160 × 320"}},
                     {{"torch.backends.cudnn.benchmark", "False", "train.py:22"}}),
  };
  const std::pair<std::string, int> places[] = {
      {kSampleScript, 39}, {kSampleTargets, 19}, {"", 0}, {"", 0}, {kSampleScript, 64}, {kSampleScript, 54},
      {kSampleScript, 39}, {kSampleScript, 22}};
  for (std::size_t i = 0; i < findings.size(); ++i) std::tie(findings[i].file, findings[i].line) = places[i];
  findings[6].consequence_of = "";
  findings[2].confidence = model::Confidence::likely;
  return findings;
}

/// One step on both lanes: the loader, the Python loop, then many short kernels.
inline std::vector<model::TimelineBar> sample_timeline() {
  std::vector<model::TimelineBar> bars{
      {"host", 0, 7.31, "data-wait", "train.py:53"},          {"host", 7.31, 0.98, "copy-wait", "train.py:54"},
      {"host", 8.29, 3.42, "python", "make_targets"},         {"host", 11.71, 0.24, "unexplained", ""},
      {"host", 11.95, 2.9, "forward", "train.py:58"},         {"host", 14.85, 3.6, "backward", "loss.backward()"},
      {"host", 18.45, 0.82, "optimizer", "optimizer.step()"}, {"host", 19.27, 2.13, "sync-drain", "loss.item()"},
      {"gpu", 7.78, 0.43, "gpu-copy-h2d", "31.5 MB"}};
  const char* kinds[] = {"gpu-convolution", "gpu-elementwise", "gpu-normalisation", "gpu-elementwise"};
  double at = 12.1;
  for (int i = 0; at < 19.6; ++i) {
    const auto length = 0.02 + 0.09 * std::abs(std::sin(i * 1.7));
    bars.push_back({"gpu", at, length, kinds[i % 4], "kernel " + std::to_string(i)});
    at += length + (i % 5 == 0 ? 0.035 : 0.006);
  }
  bars.push_back({"gpu", at, 0.41, "gpu-optimizer", "multi_tensor_apply_kernel"});
  return bars;
}

inline std::vector<model::TrendPoint> sample_trend() {
  std::vector<model::TrendPoint> points;
  for (int i = 0; i < 240; ++i) {
    const auto wave = std::sin(i * 0.37) + 0.6 * std::sin(i * 1.31);
    const bool evaluates = i % 60 == 59;
    points.push_back({i * 1.1, 21.4 + 0.5 * wave + (i < 4 ? 30.0 / (i + 1) : 0) + (evaluates ? 9 : 0),
                      7.3 + 0.4 * wave + (evaluates ? 8 : 0), 214 + 11 * wave - (evaluates ? 60 : 0),
                      4.1 + (i > 6 ? 1.2 : 0.2 * i) + 0.0008 * i});
  }
  return points;
}

/// A keypoint network trained the slow way on an H200: no loader workers, targets made in Python, an .item() in every
/// step.
inline model::Explanation sample_explanation() {
  model::Explanation e;
  e.info = sample_run_info();
  e.verdict = "loader-workers-zero";
  e.has_gpu = true;
  e.steps = 12400;
  e.step_ms = {21.2, 21.4, 20.1, 24.9, 12380};
  e.samples_per_step = 64;
  e.samples_per_second = 2990;
  e.gpu_busy_ms = 7.58;
  e.unexplained_ms = 0.24;
  e.explained_idle_share = 0.983;
  e.causes = sample_causes();
  e.kernels = {
      {"convolution", "fp32", false, 3.94, 92,
       "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw_tilesize128x64x8_stage3"},
      {"elementwise", "fp32", false, 1.92, 148,
       "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>"},
      {"normalisation", "fp32", false, 0.88, 46, "cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>"},
      {"optimizer", "", false, 0.41, 36,
       "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float>>"},
      {"matmul", "tf32", true, 0.08, 6,
       "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_warpgroupsize1x1x1_execute_segment_k_off_kernel"}};
  e.lines = sample_lines();
  e.findings = sample_findings();
  e.resources = {{"gpu-busy", 35.4, 100, "%", "", "kernel records"},
                 {"power", 214, 700, "W", "", "enforced limit, NVML"},
                 {"memory", 5.31, 139.8, "GiB", "", "NVML"},
                 {"compute", 3.1, 67, "TFLOP/s", "", "dense FP32 peak, NVIDIA H200 data sheet"},
                 {"memory-bandwidth", std::nullopt, 4800, "GB/s", "the step is compiled", ""},
                 {"pcie", 1.5, 63, "GB/s", "", "PCIe 5.0 x16"},
                 {"cpu", 1.02, 24, "CPUs", "", "allowed to this process"}};
  e.settings = {
      {"loader.num_workers", "24", "keypoints.yaml:7", "0", "train.py:39", true,
       "the loader is built with its default"},
      {"amp", "true", "keypoints.yaml:12", "off", "train.py:33", true, "true is compared with \"true\""},
      {"cudnn.benchmark", "true", "keypoints.yaml:13", "False", "train.py:22", true, ""},
      {"loader.batch_size", "256", "keypoints.yaml:6", "1", "train.py:39", true, "each item is a file of 64 samples"},
      {"optimizer.lr", "0.0003", "keypoints.yaml:10", "0.0003", "train.py:42", false, ""},
      {"epochs", "20", "--epochs", "20", "", false, ""},
      {"matmul.allow_tf32", "", "", "False", "", false, ""}};
  e.trend = sample_trend();
  e.example_step = sample_timeline();
  e.example_step_ms = 21.4;
  e.between = {{"evaluation", 11.8, 0.043}, {"checkpoint", 2.9, 0.011}, {"first-steps", 3.4, 0.012}};
  e.facts = {{"parameters", "3.5 M"}, {"dtype", "float32"},   {"device", "cuda:0"},           {"torch", "2.11.0+cu130"},
             {"gpu", "NVIDIA H200"},  {"optimizer", "AdamW"}, {"batch", "64 × 3 × 160 × 320"}};
  e.overhead_steady_us = 3.4;
  e.overhead_share = 0.0041;
  e.epoch_left_s = 38;
  e.energy_kwh = 0.0162;
  e.energy_cost = 0.005;
  return e;
}

/// The same network on a machine without a GPU: the host's causes only.
inline model::Explanation sample_cpu_explanation() {
  auto e = sample_explanation();
  e.has_gpu = false;
  e.no_gpu_records = "the training runs on the CPU";
  e.gpu_busy_ms.reset();
  e.explained_idle_share.reset();
  e.steps = 310;
  e.step_ms = {839.0, 842.0, 820.0, 911.0, 305};
  e.samples_per_second = 76;
  e.causes = {
      {"backward",
       false,
       true,
       448.0,
       std::nullopt,
       std::nullopt,
       {sample_line(kSampleScript, 62, "train_epoch", 448, "backward")}},
      {"forward",
       false,
       true,
       231.0,
       std::nullopt,
       std::nullopt,
       {sample_line(kSampleScript, 58, "train_epoch", 231, "forward")}},
      {"data-wait", false, true, 96.0, 88.0, 88.0, {sample_line(kSampleScript, 53, "train_epoch", 96, "data-wait")}},
      {"python", false, true, 49.0, 49.0, 49.0, {sample_line(kSampleTargets, 19, "make_targets", 49, "python")}},
      {"optimizer",
       false,
       true,
       14.0,
       std::nullopt,
       std::nullopt,
       {sample_line(kSampleScript, 63, "train_epoch", 14, "optimizer")}},
      {"unexplained", false, false, 4.0, std::nullopt, std::nullopt, {}}};
  e.lines.clear();
  for (const auto& cause : e.causes) e.lines.insert(e.lines.end(), cause.lines.begin(), cause.lines.end());
  e.unexplained_ms = 4;
  e.verdict = "model-on-cpu";
  e.findings = {sample_finding("model-on-cpu", model::Layer::application, model::Severity::error, 0, {{"pid", "4242"}},
                               {{"parameters", "3.5 M on cpu", "model"}}),
                sample_finding("loader-workers-zero", model::Layer::application, model::Severity::warning, 88.0, {},
                               {{"num_workers", "0", "train.py:39"}})};
  e.findings[1].file = kSampleScript;
  e.findings[1].line = 39;
  e.kernels.clear();
  e.example_step.clear();
  e.resources = {{"cpu", 7.4, 8, "CPUs", "", "allowed to this process"}};
  e.info.sampler = "no NVIDIA driver";
  for (auto& point : e.trend) {
    point = {point.at_s, 842 + 20 * std::sin(point.at_s), 96 + 5 * std::sin(point.at_s), std::nullopt, std::nullopt};
  }
  e.energy_kwh.reset();
  e.energy_cost.reset();
  e.remarks = {"no NVML: GPU power, clocks and memory were not sampled"};
  return e;
}

/// A program that ended before its first step.
inline model::Explanation sample_without_steps() {
  model::Explanation e;
  e.info = sample_run_info();
  e.info.seconds = 4.2;
  e.info.exit_code = 1;
  e.info.gpus.clear();
  e.no_gpu_records = "no step was seen";
  e.facts = {{"python", "3.11.9"}, {"torch", "2.11.0+cu130"}};
  e.remarks = {"the program ended before its first optimiser step"};
  return e;
}

}  // namespace fullwatt::tests
