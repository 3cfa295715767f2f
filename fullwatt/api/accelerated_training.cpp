#include "fullwatt/api/accelerated_training.hpp"

#include <algorithm>
#include <utility>

#include <ATen/Context.h>

#include "fullwatt/api/device_decision.hpp"
#include "fullwatt/api/gpu_diagnostic_tool.hpp"
#include "fullwatt/api/outcome.hpp"
#include "fullwatt/engine/device_check.hpp"
#include "fullwatt/engine/gpu_card.hpp"
#include "fullwatt/engine/schedule.hpp"

namespace fullwatt::api {
namespace {

using base::Error;

/// The same batch whenever one is asked for.
class OneBatch final : public engine::Batches {
 public:
  explicit OneBatch(const Fields& batch) : batch_(batch) {}
  base::Result<std::optional<Fields>> next() override { return batch_; }

 private:
  const Fields& batch_;
};

/// The loader's next ones, each looked at.
class LoadedBatches final : public engine::Batches {
 public:
  LoadedBatches(OptimizedLoader& loader, std::function<Fields(const Fields&)> look)
      : loader_(loader.state()), look_(std::move(look)) {}
  base::Result<std::optional<Fields>> next() override {
    const auto batch = loader_.take();
    if (!batch) return std::unexpected(batch.error());
    return look_(*batch);
  }

 private:
  OptimizedLoader::State& loader_;
  std::function<Fields(const Fields&)> look_;
};

/// Torch would compute a loss of the wrong kind for a while before it fails, and not say where.
Loss checked(Loss loss, at::Device device) {
  return [loss = std::move(loss), device](const Fields& batch) {
    auto value = loss(batch);
    if (!value.defined() || value.numel() != 1)
      raise({Error::Kind::bad_input, "the loss is not a single number", "Let it return a mean over the batch."});
    if (value.device() != device)
      raise({Error::Kind::bad_input, "the loss is on " + value.device().str() + ", the training on " + device.str(),
             "Compute it from the batch it is given, and keep other tensors as buffers of the module."});
    return value.dim() == 0 ? value : value.reshape({});
  };
}

void check_fields(const Fields& batch) {
  const auto refuse = [](const std::string& what) {
    raise({Error::Kind::bad_input, what, "Each field of a batch needs the same number of samples, at least one."});
  };
  if (batch.empty()) refuse("the batch has no fields");
  for (const auto& [name, tensor] : batch) {
    const auto field = "the field " + base::printable(name, 100);
    if (!tensor.defined() || tensor.dim() == 0) refuse(field + " has no samples");
    if (tensor.size(0) == 0 || tensor.size(0) != engine::samples_of(batch))
      refuse(field + " has " + std::to_string(tensor.size(0)) + " samples");
  }
}

/// The GPU of the process, in a form that the engine knows: that which the module is on already, or else the one that
/// `fullwatt select` would choose. Only where there are several; to look at the machine takes a moment.
engine::Place place_of(const torch::nn::Module& network, const TrainingConfig& config) {
  engine::Place place;
  engine::RunRecording::of_this_process(place.rank);  // before a GPU is asked for
  if (config.hardware.device == "cpu" || at::getNumGPUs() < 2) return place;
  const auto device = network.parameters().front().device();
  if (device.is_cuda()) {
    place.local_rank = device.index();  // NOLINT(bugprone-signed-char-misuse): a number, no letter
    return place;
  }
  const auto selected = GpuDiagnosticTool({.import_torch = false}).diagnose_device_selection().selected;
  std::vector<std::string> addresses;
  for (std::size_t i = 0; i < at::getNumGPUs(); ++i)
    addresses.push_back(engine::gpu_card(static_cast<c10::DeviceIndex>(i)).pci_address);
  place.local_rank = static_cast<int>(index_of_gpu(selected ? selected->bdf : "", addresses));
  return place;
}

/// No samples, before there is a loader: what a setting would do with them is not known.
class NoData final : public engine::DataSet {
 public:
  base::Result<void> fetch(std::size_t, std::span<const std::int64_t>, std::byte*) const override { return {}; }
};

}  // namespace

AcceleratedTraining::AcceleratedTraining(torch::nn::Module& network, Loss loss, const TrainingConfig& config)
    : network_(network), config_(config) {
  if (network_.parameters().empty())
    raise({Error::Kind::bad_input, "the module has no parameters", "Register its modules and parameters."});
  const auto forward = std::make_shared<Loss>();
  accelerator_ = value_of(engine::Accelerator::make(
      network_, [forward](const Fields& batch) { return (*forward)(batch); }, config_, place_of(network_, config_)));
  *forward = checked(std::move(loss), device());  // the device is known now
  course_->train_by(&accelerator_->step());
  if (device().is_cpu()) course_->no_gpu("the training is on the CPU");
}

AcceleratedTraining::~AcceleratedTraining() {
  course_->train_by(nullptr);
}

void AcceleratedTraining::begin_random_anew() {
  course_->mark();  // a graph that is recorded again forgets losses
  accelerator_->begin_random_anew();
}

OptimizedLoader AcceleratedTraining::loader_of(Samples samples) {
  auto state = std::make_unique<OptimizedLoader::State>(std::move(samples), accelerator_->loader_options(),
                                                        accelerator_->delivery());
  is_cached_ = engine::is_cached(*state->samples.data, state->delivery);
  return OptimizedLoader(std::move(state));
}

void AcceleratedTraining::step(const Fields& batch) {
  check_fields(batch);
  value_of(engine::check_limits(batch, config_.data.limits, [](const auto&, std::int64_t place) {
    return "sample " + std::to_string(place) + " of the batch (the first is 0)";
  }));
  take_step(batch);
}

void AcceleratedTraining::take_step(const Fields& batch) {
  begin_step();
  const auto inputs = on_device(batch);
  step_over(inputs);
  course_->stepped(engine::samples_of(inputs));
}

void AcceleratedTraining::step(OptimizedLoader& loader) {
  const auto parts =
      std::min(static_cast<std::uint64_t>(config_.train.accumulation), loader.batches_per_epoch() - loader.batch());
  if (parts == 1) return take_step(value_of(loader.state().take()));
  begin_step();
  step_over(loader, parts);
  course_->stepped(static_cast<std::int64_t>(parts) * config_.train.batch_size);
}

void AcceleratedTraining::begin_step() {
  auto& optimizer = accelerator_->step().optimizer();
  const auto is_elsewhere = [this](const at::Tensor& parameter) { return parameter.device() != device(); };
  if (std::ranges::any_of(optimizer.parameters(), is_elsewhere))
    value_of(engine::must_be_on(device(), engine::weights_of(network_),
                                "Leave the module where setup_gpu_training put it."));
  optimizer.set_rate(engine::rate_at(config_.optimizer, course_->number(), planned_steps_));
}

void AcceleratedTraining::step_over(const Fields& batch) {
  auto& step = accelerator_->step();
  const bool may_be_graph = is_as_first(batch);
  for (;;) {
    try {
      if (may_be_graph) {
        OneBatch one(batch);
        value_of(accelerator_->make_step(one, 1));
      } else {
        step.add(batch, 1);
        value_of(step.apply());
      }
      return;
    } catch (const c10::OutOfMemoryError&) {
      make_smaller();
    } catch (...) {
      step.forget();
      throw;
    }
  }
}

void AcceleratedTraining::step_over(OptimizedLoader& loader, std::uint64_t parts) {
  const auto epoch = loader.epoch();
  const auto batch = loader.batch();
  LoadedBatches batches(loader, [this](const Fields& fields) { return on_device(fields); });
  for (;;) {
    try {
      value_of(accelerator_->make_step(batches, parts));
      return;
    } catch (const c10::OutOfMemoryError&) {
      make_smaller();
      loader.seek(epoch, batch);
    } catch (...) {
      accelerator_->step().forget();
      throw;
    }
  }
}

void AcceleratedTraining::make_smaller() {
  if (!accelerator_->halve())
    raise({Error::Kind::unavailable, "the memory of the device is too small for a single sample",
           "Take a smaller model, or close what else uses the device ('fullwatt doctor' names it)."});
}

Fields AcceleratedTraining::on_device(const Fields& batch) {
  inputs_ = batch.size();
  const auto is_elsewhere = [this](const auto& field) { return field.second.device() != device(); };
  is_input_copied_ = std::ranges::any_of(batch, is_elsewhere);
  if (!is_input_copied_) return batch;
  Fields moved;
  for (const auto& [name, tensor] : batch) moved.emplace(name, tensor.to(device()));
  return moved;
}

bool AcceleratedTraining::is_as_first(const Fields& batch) {
  if (first_.empty()) {
    for (const auto& [name, tensor] : batch) first_.emplace(name, tensor.to(at::TensorOptions().device(at::kMeta)));
  }
  return std::ranges::equal(first_, batch, [](const auto& one, const auto& other) {
    return one.first == other.first && one.second.sizes() == other.second.sizes() &&
           one.second.scalar_type() == other.second.scalar_type();
  });
}

DeviceCheck AcceleratedTraining::check() const {
  DeviceCheck found;
  found.inputs = inputs_;
  found.is_input_copied = is_input_copied_;
  const auto tensors = engine::check_device(network_, device());
  found.parameters = tensors.parameters;
  found.buffers = tensors.buffers;
  found.bytes = tensors.bytes;
  found.elsewhere = tensors.elsewhere;
  return found;
}

std::string AcceleratedTraining::graph() const {
  if (!config_.train.compile_model) return "no CUDA graph of the step: train.compile_model is false";
  if (!config_.train.wants_graph()) return "no CUDA graph of the step: train.compile_mode wants none";
  if (accelerator_->step().pieces() > 1) return "no CUDA graph of the step: batches are computed in pieces";
  if (!accelerator_->told_of_graph().empty()) return accelerator_->told_of_graph();
  if (device().is_cpu()) return "no CUDA graph of the step: only a GPU has graphs";
  if (config_.train.accumulation > static_cast<std::int64_t>(engine::StepGraph::kMostParts))
    return "no CUDA graph of the step: it has too many batches";
  return "a CUDA graph is made with the first step";
}

std::vector<SettingInForce> AcceleratedTraining::settings() const {
  auto otherwise = accelerator_->otherwise(NoData{});
  std::erase_if(otherwise, [](const auto& other) { return other.name == "data.device_cache_gb"; });
  const auto& cache = config_.data.device_cache_gb;
  if (is_cached_ && (!cache || (*cache > 0 && !*is_cached_)))
    otherwise.push_back({"data.device_cache_gb", *is_cached_ ? "all samples" : "0",
                         *is_cached_ ? "they take less than half of the free memory" : "the samples are larger"});
  if (config_.train.activation_checkpointing)
    otherwise.push_back({"train.activation_checkpointing", "false", "the module is the program's own"});
  for (auto& other : otherwise) {
    if (other.name == "train.compile_model" && device().is_cuda()) other.value = graph();
  }
  std::vector<SettingInForce> all;
  for (const auto& [name, value] : engine::settings_of(config_)) {
    if (name.starts_with("model.")) continue;
    const auto other = std::ranges::find(otherwise, name, &engine::Otherwise::name);
    const bool is_other = other != otherwise.end();
    all.push_back({name, value, is_other ? other->value : value, is_other ? other->why : ""});
  }
  return all;
}

AcceleratedConfig AcceleratedTraining::in_force() const {
  const auto& step = accelerator_->step();
  const auto loader = accelerator_->loader_options();
  const auto is_laid_out = [](const at::Tensor& parameter) {
    return parameter.dim() == 4 && parameter.is_contiguous(at::MemoryFormat::ChannelsLast);
  };
  AcceleratedConfig config;
  config.device = device().str();
  config.precision = engine::to_string(step.settings().precision);
  config.tf32 =
      device().is_cuda() && at::globalContext().float32MatmulPrecision() != at::Float32MatmulPrecision::HIGHEST;
  config.channels_last = step.settings().channels_last && std::ranges::any_of(network_.parameters(), is_laid_out);
  config.fused_optimizer = config_.optimizer.fused;
  config.graph = graph();
  config.loader_threads = loader.threads;
  config.batches_ahead = loader.ahead;
  config.pinned_memory = device().is_cuda() && config_.train.pin_memory;
  config.batch_size = config_.train.batch_size;
  config.effective_batch = config_.train.batch_size * config_.train.accumulation;
  config.pieces = step.pieces();
  config.check = check();
  config.settings = settings();
  return config;
}

}  // namespace fullwatt::api
