// Trains a module of its own on the CPU through TrainingAccelerator, in every way there is, and asks
// GpuPerformanceAnalyzer how fast that was. The folder that it is given is for checkpoints.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "fullwatt/api/gpu_performance_analyzer.hpp"

namespace {

namespace api = fullwatt::api;
using api::Fields;

constexpr std::int64_t kSamples = 512;
constexpr std::int64_t kInputs = 8;

void must(bool is_so, const std::string& what) {
  std::cout << (is_so ? "yes: " : "NO: ") << what << "\n";
  if (!is_so) throw std::runtime_error("it is not so that " + what);
}

struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(kInputs, 32))),
        last(register_module("last", torch::nn::Linear(32, 1))) {
    register_buffer("seen", torch::zeros({1}));
  }
  at::Tensor forward(const at::Tensor& inputs) { return last->forward(first->forward(inputs).relu()).squeeze(1); }

  torch::nn::Linear first;
  torch::nn::Linear last;
};

api::Benchmark::Model make_model() {
  const auto net = std::make_shared<Net>();
  return {net, [net](const Fields& batch) {
            return torch::nn::functional::mse_loss(net->forward(batch.at("inputs")), batch.at("targets"));
          }};
}

Fields make_samples() {
  torch::manual_seed(1);
  const auto inputs = torch::randn({kSamples, kInputs});
  return {{"inputs", inputs}, {"targets", inputs.select(1, 0) * inputs.select(1, 1)}};
}

api::TrainingConfig config_in(const std::string& folder) {
  api::TrainingConfig config;
  config.hardware.device = "cpu";
  config.train.batch_size = 32;
  config.train.epochs = 6;
  config.train.num_workers = 2;
  config.optimizer.lr = 1e-2;
  config.output.folder = folder + "/checkpoints";
  return config;
}

/// A training with a net and samples of its own.
struct Training {
  explicit Training(const api::TrainingConfig& config) : accelerator(model.network, model.loss) {
    in_force = accelerator.setup_gpu_training(config);
  }
  double weights() const {
    double sum = 0;
    for (const auto& parameter : model.network->parameters()) sum += parameter.abs().sum().item<double>();
    return sum;
  }

  api::Benchmark::Model model = make_model();
  api::TrainingAccelerator accelerator;
  api::AcceleratedConfig in_force;
};

void print(const api::AcceleratedConfig& config) {
  std::cout << "device " << config.device << ", " << config.precision << ", " << config.graph << ", "
            << config.loader_threads << " loader threads, " << config.check.parameters << " parameters and "
            << config.check.buffers << " buffers of " << config.check.bytes << " bytes\n";
  for (const auto& setting : config.settings) {
    if (setting.configured != setting.in_force)
      std::cout << "  " << setting.name << ": " << setting.configured << " -> " << setting.in_force << " ("
                << setting.why << ")\n";
  }
}

void its_own_loop(const api::TrainingConfig& config) {
  Training training(config);
  print(training.in_force);
  must(training.in_force.device == "cpu" && training.in_force.check.is_one_device(), "all tensors are on the CPU");
  auto loader = training.accelerator.optimize_data_loading(make_samples());
  auto monitor = training.accelerator.enable_performance_monitoring();
  std::vector<double> losses;
  for (int epoch = 0; epoch < 4; ++epoch) {
    std::uint64_t batches = 0;
    for (const auto& batch : loader) {
      training.accelerator.step(batch);
      batches += batch.at("inputs").size(0) == 32 ? 1 : 0;
    }
    must(batches == loader.batches_per_epoch(), "a loop over the loader is an epoch");
    const auto figures = monitor.figures();
    std::cout << "  step " << figures.step << ", " << figures.samples_per_second << " samples/s, " << figures.step_ms
              << " ms, loss " << figures.loss.value_or(NAN) << ", GPU: " << figures.gpu.reason << "\n";
    losses.push_back(figures.loss.value_or(NAN));
  }
  must(losses.back() < losses.front() / 2, "the loss falls");
  must(!monitor.figures().loss, "there is no loss without a step");
  must(training.accelerator.accelerated_config().check.inputs == 2, "inputs are looked at, too");
  training.accelerator.step({{"inputs", torch::zeros({5, kInputs})}, {"targets", torch::zeros(5)}});
  must(monitor.figures().steps == 1, "a batch of another size is trained, too");
}

void whole_epochs_and_checkpoints(const api::TrainingConfig& config) {
  std::filesystem::remove_all(config.output.folder);
  const auto samples = make_samples();
  Training one(config);
  auto loader = one.accelerator.optimize_data_loading(samples);
  const auto first = one.accelerator.train(
      loader, {.epochs = 3, .checkpoints = true, .progress = [](const api::TrainingFigures& figures) {
                 std::cout << "  step " << figures.step << ", loss " << figures.loss.value_or(NAN) << "\n";
                 return true;
               }});
  must(first.is_complete && first.steps == 3 * loader.batches_per_epoch(), "three epochs were trained");

  Training other(config);
  auto other_loader = other.accelerator.optimize_data_loading(samples);
  must(other.weights() != one.weights(), "another net has other weights");
  must(other.accelerator.resume(other_loader), "there is a checkpoint");
  must(other.weights() == one.weights(), "the checkpoint holds the weights");
  must(other_loader.epoch() == 3 && other.accelerator.steps() == first.steps, "it knows where it was");

  one.accelerator.train(loader, {.epochs = 4});
  const auto second = other.accelerator.train(other_loader, {.epochs = 4});
  must(second.steps == loader.batches_per_epoch(), "the other goes on for one epoch");
  must(other.weights() == one.weights(), "both come to the same weights");
}

void several_batches_a_step(api::TrainingConfig config) {
  config.train.accumulation = 3;
  Training training(config);
  auto loader = training.accelerator.optimize_data_loading(make_samples());
  const auto result = training.accelerator.train(loader, {.epochs = 1});
  must(result.steps == (loader.batches_per_epoch() + 2) / 3, "three batches make a step");
}

/// A device that has room for eight samples only.
void too_little_memory(api::TrainingConfig config) {
  const auto samples = make_samples();
  for (const std::int64_t accumulation : {1, 2}) {
    config.train.accumulation = accumulation;
    Training roomy(config);
    Training tight(config);
    const auto weights = roomy.model.network->parameters();
    for (std::size_t i = 0; i < weights.size(); ++i)
      tight.model.network->parameters()[i].data().copy_(weights[i].data());
    const auto small_loss = [loss = tight.model.loss](const Fields& batch) {
      if (batch.at("inputs").size(0) > 8)
        throw c10::OutOfMemoryError(c10::SourceLocation{__func__, __FILE__, __LINE__}, "");
      return loss(batch);
    };
    api::TrainingAccelerator small(tight.model.network, small_loss);
    small.setup_gpu_training(config);
    auto one = roomy.accelerator.optimize_data_loading(samples);
    auto other = small.optimize_data_loading(samples);
    roomy.accelerator.train(one, {.epochs = 1});
    const auto result = small.train(other, {.epochs = 1});
    must(small.accelerated_config().pieces == 4, "batches are computed in pieces that fit");
    must(result.is_complete && std::abs(tight.weights() - roomy.weights()) < 1e-3, "the training is the same");
  }
}

void samples_of_its_own(const api::TrainingConfig& config) {
  Training training(config);
  const auto samples = make_samples();
  auto arrays = training.accelerator.optimize_data_loading(samples);
  const api::SampleSource made{kSamples, [samples](std::int64_t index) {
                                 Fields sample;
                                 for (const auto& [name, tensor] : samples) sample.emplace(name, tensor[index]);
                                 return sample;
                               }};
  auto source = training.accelerator.optimize_data_loading(made);
  bool are_equal = true;
  auto expected = arrays.begin();
  for (const auto& batch : source) {
    for (const auto& [name, tensor] : batch) are_equal = are_equal && torch::equal(tensor, expected->at(name));
    training.accelerator.step(batch);
    ++expected;
  }
  must(are_equal && expected == arrays.end(), "samples that are made one by one come in the same batches");
}

/// The message that refuses something.
template <class Work>
std::string refusal(Work work) {
  try {
    work();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

void what_is_wrong_is_said(const api::TrainingConfig& config) {
  const auto refuses = [](const std::string& said, const std::string& part) {
    must(said.find(part) != std::string::npos, "'" + said + "' is said");
  };
  Training training(config);
  refuses(refusal([&] {
            auto wrong = config;
            wrong.train.batch_size = 0;
            training.accelerator.setup_gpu_training(wrong);
          }),
          "train.batch_size");
  refuses(refusal([&] { training.accelerator.optimize_data_loading("/nowhere", {{"inputs", "*.npy"}}); }), "/nowhere");
  refuses(refusal([&] { training.accelerator.step({}); }), "no fields");
  refuses(refusal([&] { training.accelerator.step({{"inputs", torch::zeros({2, 3})}, {"targets", torch::zeros(2)}}); }),
          "torch: ");
  api::TrainingAccelerator shapeless(training.model.network, [](const Fields& batch) { return batch.at("inputs"); });
  refuses(refusal([&] { shapeless.step({}); }), "setup_gpu_training");
  shapeless.setup_gpu_training(config);
  refuses(refusal([&] { shapeless.step({{"inputs", torch::zeros({2, 3})}}); }), "single number");
  api::TrainingAccelerator elsewhere(training.model.network,
                                     [](const Fields&) { return torch::zeros({}, torch::kMeta); });
  elsewhere.setup_gpu_training(config);
  refuses(refusal([&] { elsewhere.step({{"inputs", torch::zeros({2, 3})}}); }), "the loss is on meta");
}

void by_a_file(const std::string& folder) {
  std::ofstream(folder + "/training.yaml") << "data: {folder: .}\ntrain: {batch_size: 16}\nhardware: {device: cpu}\n";
  const auto model = make_model();
  api::TrainingAccelerator accelerator(model.network, model.loss);
  const auto in_force = accelerator.setup_gpu_training(folder + "/training.yaml", {"train.num_workers=3"});
  must(in_force.batch_size == 16 && in_force.loader_threads == 3, "a file of settings is understood");
}

void figures_of_the_machine(const api::TrainingConfig& config) {
  const api::GpuPerformanceAnalyzer analyzer;
  const auto use = analyzer.measure_gpu_utilization(std::chrono::milliseconds(300));
  must(use.gpu_percent.has_value() == use.reason.empty(), "there is a GPU's utilisation, or a reason: " + use.reason);
  const auto memory = analyzer.analyze_memory_usage();
  must(memory.total.has_value() == memory.reason.empty(), "there is a GPU's memory, or a reason: " + memory.reason);
  must(memory.host_process > 0 && memory.host_process < memory.host_total, "the process has memory");

  api::Benchmark benchmark{.make_model = make_model, .samples = make_samples(), .config = config, .seconds = 0.5};
  const auto speed = analyzer.benchmark_training_speed(benchmark);
  std::cout << "  " << speed.device << ": " << speed.samples_per_second << " samples/s (" << speed.speed.lowest
            << " to " << speed.speed.highest << "), " << speed.steps << " steps of " << speed.step_ms << " ms\n";
  must(speed.samples_per_second > 0 && !speed.improvement_over_cpu, "the CPU's speed is measured");
  const auto both = analyzer.compare_cpu_vs_gpu_performance(benchmark);
  must(both.gpu.has_value() == both.no_gpu.empty(), "both are compared, or a reason is given: " + both.no_gpu);
  std::cout << "  " << both.decision.conclusion << " Train on: " << both.decision.device << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "training";
  torch::manual_seed(7);
  try {
    std::filesystem::create_directories(folder);
    const auto config = config_in(folder);
    its_own_loop(config);
    whole_epochs_and_checkpoints(config);
    several_batches_a_step(config);
    too_little_memory(config);
    samples_of_its_own(config);
    what_is_wrong_is_said(config);
    by_a_file(folder);
    figures_of_the_machine(config);
  } catch (const std::exception& error) {
    std::cout << error.what() << "\n";
    return 1;
  }
  return 0;
}
