#include "fullwatt/api/training_accelerator.hpp"

#include <cmath>
#include <filesystem>

#include <ATen/Context.h>

#include "fullwatt/api/accelerated_training.hpp"
#include "fullwatt/api/outcome.hpp"
#include "fullwatt/engine/checkpoint.hpp"
#include "fullwatt/engine/data/image_folder.hpp"
#include "fullwatt/engine/gpu_card.hpp"

namespace fullwatt::api {
namespace {

namespace fs = std::filesystem;
using base::Error;

/// A program fills the configuration in; what the reader of files would refuse is refused here, in the same words.
void check(TrainingConfig config) {
  constexpr const char* kNothing = "{model: {name: own}, data: {folder: .}}";
  config.model = {};
  config.model.name = "own";
  if (config.data.folder.empty()) config.data.folder = ".";
  std::vector<std::string> settings;
  for (const auto& [name, value] : engine::settings_of(config)) settings.push_back(name + "=" + value);
  value_of(engine::parse_config(kNothing, settings));
}

/// The engine sees a program's own samples as bytes: their numbers are looked at where they are made.
SampleSource limited(SampleSource source, const engine::Limits& limits) {
  if (limits.empty() || !source.sample) return source;
  source.sample = [make = std::move(source.sample), limits](std::int64_t index) {
    auto sample = make(index);
    Fields batch;
    for (const auto& [name, tensor] : sample) batch.emplace(name, tensor.unsqueeze(0));
    value_of(engine::check_limits(
        batch, limits, [index](const auto&, std::int64_t) { return "the source's sample " + std::to_string(index); }));
    return sample;
  };
  return source;
}

std::uint64_t steps_per_epoch(const OptimizedLoader& loader, std::int64_t accumulation) {
  const auto each = static_cast<std::uint64_t>(accumulation);
  return (loader.batches_per_epoch() + each - 1) / each;
}

/// Another GPU's figures would be worse than none.
void watch_gpu(TrainingCourse& course, c10::DeviceIndex index) {
  if (auto address = engine::gpu_card(index).pci_address; !address.empty()) return course.watch_gpu(std::move(address));
  course.no_gpu("built without CUDA's headers, fullwatt does not know which of the driver's GPUs torch uses");
}

/// Throws where the training has come to nothing.
TrainingFigures figures_since(TrainingCourse::Mark& mark, AcceleratedTraining& training) {
  auto figures = with_torch([&] { return training.course()->since(mark); });
  if (figures.loss && !std::isfinite(*figures.loss))
    raise({Error::Kind::bad_input, "the loss is no number any more at step " + std::to_string(figures.step),
           "A smaller optimizer.lr, or train.clip, may help."});
  return figures;
}

}  // namespace

struct TrainingAccelerator::State {
  std::shared_ptr<torch::nn::Module> network;
  Loss loss;
  std::unique_ptr<AcceleratedTraining> training;

  OptimizedLoader loader_of(Samples samples) {
    auto loader = training->loader_of(std::move(samples));
    const auto& train = training->config().train;
    training->plan_steps(steps_per_epoch(loader, train.accumulation) * static_cast<std::uint64_t>(train.epochs));
    return loader;
  }
};

TrainingAccelerator::TrainingAccelerator(std::shared_ptr<torch::nn::Module> network, Loss loss)
    : state_(std::make_unique<State>()) {
  if (!network || !loss) raise({Error::Kind::bad_input, "the module or its loss is missing", "Give both."});
  state_->network = std::move(network);
  state_->loss = std::move(loss);
}
TrainingAccelerator::~TrainingAccelerator() = default;
TrainingAccelerator::TrainingAccelerator(TrainingAccelerator&&) noexcept = default;
TrainingAccelerator& TrainingAccelerator::operator=(TrainingAccelerator&&) noexcept = default;

TrainingAccelerator::State& TrainingAccelerator::ready() const {
  if (!state_->training)
    raise({Error::Kind::bad_input, "the training is not set up", "Call setup_gpu_training first."});
  return *state_;
}

AcceleratedConfig TrainingAccelerator::setup_gpu_training(const TrainingConfig& config) {
  check(config);
  state_->training.reset();  // before the next one takes the thread's stream
  with_torch([&] {
    at::manual_seed(static_cast<std::uint64_t>(config.train.seed));
    state_->training = std::make_unique<AcceleratedTraining>(*state_->network, state_->loss, config);
  });
  return accelerated_config();
}

AcceleratedConfig TrainingAccelerator::setup_gpu_training(const std::string& file,
                                                          const std::vector<std::string>& overrides) {
  auto settings = overrides;
  settings.emplace_back("model.name=own");  // the file may name one, and need not
  return setup_gpu_training(value_of(engine::read_config(file, settings)));
}

AcceleratedConfig TrainingAccelerator::accelerated_config() const {
  return ready().training->in_force();
}

OptimizedLoader TrainingAccelerator::optimize_data_loading(const Fields& arrays) {
  return with_torch([&] { return ready().loader_of(from_arrays(arrays)); });
}

OptimizedLoader TrainingAccelerator::optimize_data_loading(SampleSource source) {
  return with_torch([&] {
    auto& state = ready();
    return state.loader_of(from_source(limited(std::move(source), state.training->config().data.limits)));
  });
}

OptimizedLoader TrainingAccelerator::optimize_data_loading(const std::string& folder,
                                                           const std::map<std::string, std::string>& fields) {
  return ready().loader_of({.data = value_of(engine::open_npy_folder(folder, fields))});
}

OptimizedLoader TrainingAccelerator::optimize_data_loading() {
  const auto& data = ready().training->config().data;
  if (data.format == "images")
    return ready().loader_of(
        {.data = value_of(engine::open_image_folder(data.folder, {data.image_height, data.image_width}))});
  if (data.fields.empty())
    raise({Error::Kind::bad_input, "data.fields is empty", "Name the files of each field that the loss uses."});
  return optimize_data_loading(data.folder, data.fields);
}

PerformanceMonitor TrainingAccelerator::enable_performance_monitoring() {
  return with_torch([&] {
    auto& training = *ready().training;
    const auto& course = training.course();
    if (training.device().is_cuda()) watch_gpu(*course, training.device().index());
    return PerformanceMonitor(std::make_unique<PerformanceMonitor::State>(course, course->mark()));
  });
}

void TrainingAccelerator::step(const Fields& batch) {
  with_torch([&] { ready().training->step(batch); });
}

TrainingResult TrainingAccelerator::train(OptimizedLoader& loader, const TrainOptions& options) {
  auto& training = *ready().training;
  const auto& config = training.config();
  const auto epochs = options.epochs.value_or(static_cast<std::uint64_t>(config.train.epochs));
  if (options.checkpoints) resume(loader);
  training.plan_steps(steps_per_epoch(loader, config.train.accumulation) * epochs);
  auto begun = training.course()->mark();
  auto told = begun;
  auto saved_step = steps();
  TrainingResult result;
  for (bool is_going = true; is_going && loader.epoch() < epochs;) {
    with_torch([&] { training.step(loader); });
    const bool is_end = loader.batch() == 0;
    if (is_end || steps() % static_cast<std::uint64_t>(config.train.log_every) == 0) {
      const auto figures = figures_since(told, training);
      result.loss = figures.loss;
      is_going = !options.progress || options.progress(figures);
    }
    if (options.checkpoints && is_end && loader.epoch() % static_cast<std::uint64_t>(config.output.every_epochs) == 0) {
      save(loader);
      saved_step = steps();
    }
  }
  if (options.checkpoints && saved_step != steps()) save(loader);
  const auto whole = figures_since(begun, training);
  result.steps = whole.steps;
  result.is_complete = loader.epoch() >= epochs;
  result.seconds = whole.seconds;
  result.samples_per_second = whole.samples_per_second;
  return result;
}

std::uint64_t TrainingAccelerator::steps() const {
  return ready().training->course()->number();
}

std::string TrainingAccelerator::save(const OptimizedLoader& loader) {
  auto& training = *ready().training;
  const auto& folder = training.config().output.folder;
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure)
    raise({Error::Kind::refused, base::printable(folder, 300) + ": " + failure.message(),
           "Name another folder in output.folder."});
  const auto path = engine::checkpoint_path(folder, steps());
  with_torch([&] {
    value_of(engine::save_checkpoint(path, training.tensors(), training.device(),
                                     {loader.epoch(), loader.batch(), steps()}));
    training.begin_random_anew();
  });
  engine::remove_old_checkpoints(folder);
  return path;
}

bool TrainingAccelerator::resume(OptimizedLoader& loader) {
  auto& training = *ready().training;
  std::optional<Error> newest;
  for (const auto& path : engine::checkpoints_in(training.config().output.folder)) {
    const auto position =
        with_torch([&] { return engine::load_checkpoint(path, training.tensors(), training.device()); });
    if (position) {
      training.course()->go_on_from(position->step);
      loader.seek(position->epoch, position->batch);
      return true;
    }
    if (!newest) newest = position.error();
  }
  if (newest) raise(*newest);  // not to train over it
  return false;
}

}  // namespace fullwatt::api
