#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "catalog/catalog.hpp"
#include "tests/support/machines.hpp"
#include "tests/support/run_builder.hpp"
#include <gtest/gtest.h>

#include "fullwatt/explain/explain.hpp"
#include "fullwatt/model/explanation.hpp"

/// Trainings on an H200 that have nothing wrong, for tests that spoil one thing.
namespace fullwatt::tests {

constexpr const char* kConvolution =
    "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_kernel__5x_cudnn";
constexpr const char* kFusedAdam =
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, "
    "FusedAdamMathFunctor<float, 4>>";
constexpr const char* kUuid = "GPU-11111111-aaaa-bbbb-cccc-000000000001";

/// What the agent says of a training that is well set up; a test replaces what it spoils.
struct Said {
  std::string loader =
      R"("batch_size":64,"num_workers":8,"pin_memory":true,"persistent_workers":true,"prefetch_factor":2)";
  std::string model =
      R"("class":"ResNet","parameters":25000000,"dtypes":{"torch.float32":25000000},"devices":{"cuda:0":25000000},"channels_last":1.0)";
  std::string optimizer = R"("class":"AdamW","fused":true,"tensors":160,"lr":0.001)";
  std::string settings =
      R"("cudnn.enabled":true,"cudnn.benchmark":true,"cudnn.deterministic":false,"cudnn.allow_tf32":true,"matmul.allow_tf32":true,"threads":8,"anomaly_detection":false,"sync_debug":0,"profiler":false)";
  std::string autocast =
      R"("device":"cuda","dtype":"torch.bfloat16","enabled":true,"site":{"file":"/home/ada/train.py","line":15,"function":"train"})";
  std::string gpu =
      R"("index":0,"name":"NVIDIA H200","uuid":"11111111-aaaa-bbbb-cccc-000000000001","capability":"9.0","memory_bytes":150000000000)";
  std::string device_check =
      R"("parameters":{"cuda:0":160},"inputs":{"cuda:0":1},"consistent":true,"uuid":"11111111-aaaa-bbbb-cccc-000000000001")";
  std::string memory =
      R"("device":"cuda:0","peak_allocated_bytes":90000000000,"peak_reserved_bytes":95000000000,"retries":0,"oom":0)";
  std::string environment;
};

inline std::string object(const std::string& fields) {
  return "{" + fields + "}";
}

inline RunBuilder& say(RunBuilder& builder, const Said& said) {
  constexpr const char* kSite = R"("site":{"file":"/home/ada/train.py","line":9,"function":"main"},)";
  builder.fact("gpu", object(said.gpu));
  if (!said.loader.empty()) builder.fact("loader", object(R"("id":1,)" + std::string(kSite) + said.loader));
  builder.fact("model", object(R"("id":1,)" + said.model));
  builder.fact("optimizer", object(R"("id":0,)" + std::string(kSite) + said.optimizer));
  builder.fact("input", R"({"shape":[64,3,224,224],"dtype":"torch.float32","device":"cuda:0","samples":64})");
  builder.fact("settings", object(R"("when":"end","values":{)" + said.settings + "}"));
  if (!said.autocast.empty()) builder.fact("autocast", object(said.autocast));
  builder.fact("device_check", object(said.device_check));
  builder.fact("memory", object(said.memory));
  return builder.fact("environment", object(R"("values":{)" + said.environment + "}"));
}

/// Line 12 takes a batch, 13 copies it, 15 is the forward pass, 18 the backward pass, 19 the optimiser, 20 loss.item().
inline Script forward(double gpu_ms = 4, const std::string& kernel = kConvolution) {
  return Script().data(12, 0.02).copy(13, 9'600'000, 0.25, false).launches(8, 15, kernel, gpu_ms);
}
inline Script& finish(Script& script, double gpu_ms = 3, const std::string& kernel = kConvolution, int fused = 1) {
  script.begin(model::Phase::backward, 18).launches(8, 18, kernel, gpu_ms).end();
  script.begin(model::Phase::optimizer, 19).launches(fused, 19, kFusedAdam, 0.3 / fused).end();
  return script.sync(20);
}
inline Script healthy_script() {
  auto script = forward();
  return finish(script);
}

/// 16 CPUs, half of them at work, and one H200 that runs as it should.
inline void add_machine(model::Run& run) {
  auto machine = machine_without_gpu();
  add_nvidia(machine, {.uuid = kUuid, .name = "NVIDIA H200", .compute_capability = "9.0", .memory_bytes = 140 * kGib});
  machine.host.system.cpus = "0-15";
  machine.host.system.online_cpus = 16;
  run.machine = machine;
  run.info.gpus = {{0, kUuid, "NVIDIA H200", "0000:01:00.0", true}};
}

inline void add_samples(model::Run& run, double busy = 9, double training = 8, int count = 40) {
  for (int i = 0; i < count; ++i) {
    model::HostSample host;
    host.at_ns = RunBuilder::at_ns(i * 2000.0);
    host.cpus_busy = busy;
    host.cpus_training = training;
    host.training_rss_bytes = 4 * kGib;
    run.host_samples.push_back(host);
    model::GpuSample gpu;
    gpu.at_ns = host.at_ns;
    gpu.utilization_percent = 97;
    gpu.sm_clock_mhz = 1950 + i % 5 * 15;
    gpu.temperature_c = 62;
    gpu.throttle_reasons = 0;
    run.gpu_samples.push_back(gpu);
  }
}

/// A training of this script, with all that belongs to a run.
inline RunBuilder training(const Script& script, const Said& said = {}) {
  RunBuilder builder;
  builder.samples_per_step(64);
  say(builder, said);
  builder.train(script);
  add_machine(builder.run());
  add_samples(builder.run());
  return builder;
}

inline std::vector<const model::Finding*> all_of(const model::Explanation& explanation, std::string_view id) {
  std::vector<const model::Finding*> found;
  for (const auto& finding : explanation.findings) {
    if (finding.id == id) found.push_back(&finding);
  }
  return found;
}

inline std::string ids_of(const model::Explanation& explanation) {
  std::string ids;
  for (const auto& finding : explanation.findings) ids += finding.id + " ";
  return ids;
}

/// Every placeholder of a finding's words has its fact.
inline void expect_complete(const model::Finding& finding) {
  const auto* entry = catalog::find(finding.id);
  ASSERT_NE(entry, nullptr) << finding.id;
  std::vector<std::string_view> texts{entry->title.en, entry->cause.en};
  for (const auto& step : entry->remedy) texts.insert(texts.end(), {step.text.en, step.run});
  for (const auto text : texts) {
    for (auto open = text.find('{'); open != std::string_view::npos; open = text.find('{', open + 1)) {
      const auto name = std::string(text.substr(open + 1, text.find('}', open) - open - 1));
      EXPECT_TRUE(finding.facts.contains(name)) << finding.id << " lacks {" << name << "}";
    }
  }
}

/// The finding of an explanation, complete; fails where it is not there.
inline model::Finding expect_found(const model::Explanation& explanation, std::string_view id) {
  for (const auto& finding : explanation.findings) expect_complete(finding);
  const auto* finding = explanation.find(id);
  EXPECT_NE(finding, nullptr) << id << " is not among: " << ids_of(explanation);
  return finding == nullptr ? model::Finding{} : *finding;
}
inline model::Finding expect_found(const RunBuilder& builder, std::string_view id) {
  return expect_found(explain::explain(builder.build()), id);
}
inline void expect_not_found(const RunBuilder& builder, std::string_view id) {
  const auto explanation = explain::explain(builder.build());
  EXPECT_EQ(explanation.find(id), nullptr) << ids_of(explanation);
}

}  // namespace fullwatt::tests
