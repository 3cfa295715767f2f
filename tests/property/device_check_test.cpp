// P2, P3: however the tensors of a training are spread over devices, one that is not where the training is ends it, by
// its name; where all are, nothing is refused. The device `meta` stands for a second one.

#include "fullwatt/engine/device_check.hpp"

#include <algorithm>
#include <set>

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "fullwatt/engine/accelerator.hpp"

namespace fullwatt::engine {
namespace {

at::Tensor any_tensor(at::Device device) {
  return at::ones({*rc::gen::inRange<std::int64_t>(1, 4), 2}, at::TensorOptions().device(device));
}

at::Device any_device() {
  return *rc::gen::weightedElement<at::DeviceType>({{3, at::kCPU}, {1, at::kMeta}});
}

/// Parameters, buffers and modules within modules.
struct Net : torch::nn::Module {
  void fill(const std::vector<at::Device>& parameters, const std::vector<at::Device>& buffers) {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      register_parameter("weight" + std::to_string(i), any_tensor(parameters[i]));
    for (std::size_t i = 0; i < buffers.size(); ++i)
      register_buffer("mean" + std::to_string(i), any_tensor(buffers[i]));
  }
};

std::vector<at::Device> any_devices(std::size_t least, std::size_t most) {
  std::vector<at::Device> devices;
  const auto count = *rc::gen::inRange(least, most + 1);
  for (std::size_t i = 0; i < count; ++i) devices.push_back(any_device());
  return devices;
}

std::set<std::string> names_elsewhere(const Named& tensors, at::Device device) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.device() != device) names.insert(name);
  }
  return names;
}

/// That a refusal names one of these and both devices, and that there is one exactly where there are such.
void names_one_of(const std::set<std::string>& elsewhere, const base::Result<void>& answer, at::Device device) {
  RC_ASSERT(answer.has_value() == elsewhere.empty());
  if (answer) return;
  const auto& message = answer.error().message;
  const auto name = message.substr(0, message.find(' '));
  RC_ASSERT(elsewhere.contains(name));
  const at::Device other = device.is_cpu() ? at::kMeta : at::kCPU;
  RC_ASSERT(message == name + " is on " + other.str() + ", the training on " + device.str());
  RC_ASSERT(!answer.error().remedy.empty());
}

RC_GTEST_PROP(DeviceCheckTest, EveryParameterAndBufferElsewhereIsFound, ()) {
  Net outer;
  auto inner = std::make_shared<Net>();
  outer.fill(any_devices(0, 3), any_devices(0, 3));
  inner->fill(any_devices(0, 3), any_devices(0, 3));
  outer.register_module("inner", inner);
  const auto device = any_device();
  const auto weights = weights_of(outer);
  const auto found = check_device(outer, device);
  RC_ASSERT(found.parameters == outer.parameters().size());
  RC_ASSERT(found.buffers == outer.buffers().size());
  std::set<std::string> named;
  for (const auto& told : found.elsewhere) named.insert(told.substr(0, told.find(' ')));
  RC_ASSERT(named == names_elsewhere(weights, device));
  names_one_of(named, must_be_on(device, weights, "Leave them there."), device);
}

RC_GTEST_PROP(DeviceCheckTest, TheStateOfTheOptimizerAndTheScalerIsPartOfIt, ()) {
  Net net;
  net.fill({at::kCPU, at::kCPU}, {at::kCPU});
  OptimizerConfig config;
  config.name = *rc::gen::element<std::string>("adamw", "sgd");
  const StepSettings settings{.precision = *rc::gen::element(Precision::fp32, Precision::fp16)};
  const Step step(net, [](const Fields&) { return at::Tensor(); }, config, settings, at::kCPU);
  auto state = step.state();
  RC_ASSERT(must_be_on(at::kCPU, state, "Leave them there.").has_value());
  RC_ASSERT(std::ranges::any_of(state, [](const auto& item) { return item.first.starts_with("optimizer."); }));
  const auto moved = *rc::gen::inRange<std::size_t>(0, state.size());
  state[moved].second = state[moved].second.to(at::TensorOptions().device(at::kMeta));
  names_one_of({state[moved].first}, must_be_on(at::kCPU, state, "Leave them there."), at::kCPU);
}

/// The same batch again and again.
class OneBatch final : public Batches {
 public:
  explicit OneBatch(Fields batch) : batch_(std::move(batch)) {}
  base::Result<std::optional<Fields>> next() override { return batch_; }

 private:
  Fields batch_;
};

RC_GTEST_PROP(DeviceCheckTest, AStepOverABatchWithAFieldElsewhereMovesNothing, ()) {
  Net net;
  net.fill({at::kCPU}, {});
  Config config;
  config.hardware.device = "cpu";
  const auto weight = net.parameters().front();
  bool has_computed = false;
  const auto accelerator = Accelerator::make(
      net,
      [&](const Fields&) {
        has_computed = true;
        return weight.sum();
      },
      config);
  RC_ASSERT(accelerator.has_value());
  Fields batch;
  const auto devices = any_devices(1, 4);
  for (std::size_t i = 0; i < devices.size(); ++i)
    batch.emplace("field" + std::to_string(i), at::ones({3, 2}, at::TensorOptions().device(devices[i])));
  const auto before = weight.detach().clone();
  OneBatch batches(batch);
  const auto made = (*accelerator)->make_step(batches, 1);
  const auto elsewhere = names_elsewhere({batch.begin(), batch.end()}, at::kCPU);
  names_one_of(elsewhere, made ? base::Result<void>() : std::unexpected(made.error()), at::kCPU);
  RC_ASSERT(has_computed == elsewhere.empty());
  RC_ASSERT(before.equal(weight.detach()) == !elsewhere.empty());
}

}  // namespace
}  // namespace fullwatt::engine
