#include "fullwatt/engine/train.hpp"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/batches.hpp"
#include "fullwatt/engine/checkpoint.hpp"
#include "fullwatt/engine/schedule.hpp"
#include "fullwatt/engine/step_graph.hpp"
#include "fullwatt/engine/tensors.hpp"

namespace fullwatt::engine {
namespace {

namespace fs = std::filesystem;
using base::Error;
using Clock = std::chrono::steady_clock;

/// Leaves cores for the training itself.
int matched_workers(std::int64_t wanted) {
  constexpr int kMost = 8;
  if (wanted > 0) return static_cast<int>(wanted);
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1, kMost);
}

/// Everything that one training holds.
class Training {
 public:
  Training(const Config& config, const TrainOptions& options, const TrainListener& listener)
      : config_(config), options_(options), listener_(listener) {}

  base::Result<Trained> run() {
    for (const auto step :
         {&Training::choose_device, &Training::make_network, &Training::open_data, &Training::go_on}) {
      if (const auto done = (this->*step)(); !done) return std::unexpected(done.error());
    }
    tell_start();
    return steps();
  }

 private:
  base::Result<void> choose_device() {
    const bool has_gpu = at::globalContext().hasCUDA();
    if (config_.hardware.device == "cuda" && !has_gpu)
      return base::fail(Error::Kind::unavailable, "hardware.device is cuda, and torch sees no GPU",
                        "'fullwatt doctor' says why.");
    if (has_gpu && config_.hardware.device != "cpu") {
      device_ = at::Device(at::kCUDA, 0);
      // Not the default one, which a graph cannot be recorded on.
      on_stream_.emplace(c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_, false));
    }
    auto& context = at::globalContext();
    context.setBenchmarkCuDNN(config_.hardware.cudnn_benchmark && !config_.hardware.deterministic);
    const bool may_shorten = device_.is_cuda() && config_.hardware.allow_tf32;  // CPUs may shorten to bfloat16
    context.setFloat32MatmulPrecision(may_shorten ? "high" : "highest");
    context.setAllowTF32CuDNN(may_shorten);
    if (device_.is_cpu() && config_.train.amp == Precision::fp16)
      context.setUserEnabledMkldnn(false);  // it lacks LSTMs
    context.setDeterministicAlgorithms(config_.hardware.deterministic, true);
    return {};
  }

  base::Result<void> make_network() {
    at::manual_seed(static_cast<std::uint64_t>(config_.train.seed));
    auto task = make_task(config_.model);
    if (!task) return std::unexpected(task.error());
    task_ = *std::move(task);
    if (!options_.initial.empty()) {
      if (const auto loaded = load_tensors(options_.initial, weights_of(task_->network())); !loaded) return loaded;
    }
    task_->network().to(device_);
    auto precision = config_.train.amp;
    if (precision == Precision::automatic) precision = device_.is_cuda() ? Precision::bf16 : Precision::fp32;
    step_ = std::make_unique<Step>(
        task_->network(), [this](const Fields& batch) { return task_->loss(batch); }, config_.optimizer,
        StepSettings{precision, config_.train.clip, config_.train.channels_last}, device_);
    return {};
  }

  /// Files are found by their fields' names where the configuration says nothing.
  base::Result<void> open_data() {
    const auto needed = task_->fields();
    auto patterns = config_.data.fields;
    for (const auto& [name, pattern] : patterns) {
      if (std::ranges::find(needed, name) == needed.end())
        return base::fail(Error::Kind::bad_input,
                          "the model " + config_.model.name + " has no field '" + base::printable(name, 60) + "'",
                          "Its fields are: " + base::join(needed, ", "));
    }
    for (const auto& field : needed) patterns.try_emplace(field, "*" + field + ".npy");
    auto data = open_npy_folder(config_.data.folder, patterns);
    if (!data) return std::unexpected(data.error());
    data_ = *std::move(data);
    for (const auto& field : data_->fields()) {
      if (!scalar_type(field.dtype))
        return base::fail(Error::Kind::bad_input,
                          "the field " + field.name + " holds " + std::string(to_string(field.dtype)) +
                              ", which torch cannot compute with",
                          "Save it as int32 or int64.");
    }
    if (data_->samples() < config_.train.batch_size)
      return base::fail(Error::Kind::bad_input,
                        "there are " + std::to_string(data_->samples()) +
                            " samples, fewer than train.batch_size: " + std::to_string(config_.train.batch_size),
                        "Take a smaller batch.");
    return {};
  }

  /// From the newest checkpoint that can be read.
  base::Result<void> go_on() {
    std::error_code failure;
    fs::create_directories(config_.output.folder, failure);
    if (failure)
      return base::fail(Error::Kind::refused, base::printable(config_.output.folder, 300) + ": " + failure.message(),
                        "Name another folder under output: folder.");
    std::optional<Error> newest;
    const auto all = options_.anew ? std::vector<std::string>{} : checkpoints_in(config_.output.folder);
    for (const auto& path : all) {
      const auto position = load_checkpoint(path, step_->state(), device_);
      if (position) {
        position_ = *position;
        resumed_ = path;
        return {};
      }
      if (!newest) newest = position.error();
    }
    if (newest) return std::unexpected(*newest);  // not to train over it
    return {};
  }

  void tell_start() {
    std::int64_t parameters = 0;
    for (const auto& parameter : step_->optimizer().parameters()) parameters += parameter.numel();
    listener_.started({.device = device_.str(),
                       .precision = std::string(to_string(step_->settings().precision)),
                       .parameters = parameters,
                       .samples = data_->samples(),
                       .steps_per_epoch = steps_per_epoch(),
                       .effective_batch = config_.train.batch_size * config_.train.accumulation,
                       .first_step = position_.step,
                       .resumed = resumed_,
                       .otherwise = otherwise()});
  }

  /// Settings that are not in force as they were given.
  std::vector<Otherwise> otherwise() const {
    std::vector<Otherwise> found;
    const auto tell = [&](bool is, const char* name, const std::string& value, const char* why) {
      if (is) found.push_back({name, value, why});
    };
    const bool on_gpu = device_.is_cuda();
    const auto& train = config_.train;
    const auto& hardware = config_.hardware;
    tell(hardware.device == "auto", "hardware.device", device_.str(), on_gpu ? "" : "torch sees no GPU");
    tell(train.amp == Precision::automatic, "train.amp", std::string(to_string(step_->settings().precision)),
         on_gpu ? "" : "mixed precision does not pay on this CPU");
    tell(train.num_workers == 0, "train.num_workers", std::to_string(loader_options().threads), "half of the CPUs");
    tell(hardware.cudnn_benchmark && hardware.deterministic, "hardware.cudnn_benchmark", "false",
         "hardware.deterministic is true");
    tell(train.pin_memory && !on_gpu, "train.pin_memory", "false", "there is no GPU to copy to");
    tell(train.non_blocking && (!on_gpu || !train.pin_memory), "train.non_blocking", "false",
         on_gpu ? "train.pin_memory is false" : "there is no GPU to copy to");
    tell(train.compile_model && may_have_graph(), "train.compile_model", "a CUDA graph of each step",
         "LibTorch has no compiler");
    tell(train.compile_model && !may_have_graph(), "train.compile_model", "false",
         on_gpu ? "LibTorch has no compiler, and steps of several batches are no graph"
                : "LibTorch has no compiler, and only a GPU has graphs");
    tell(hardware.allow_tf32 && !on_gpu, "hardware.allow_tf32", "false", "CPUs have no TF32");
    tell(config_.data.device_cache_gb > 0 && !is_cached(*data_, delivery()), "data.device_cache_gb", "0",
         "the samples are larger");
    return found;
  }

  std::uint64_t batches_per_epoch() const {
    return static_cast<std::uint64_t>(data_->samples() / config_.train.batch_size);
  }
  std::uint64_t steps_per_epoch() const {
    const auto each = static_cast<std::uint64_t>(config_.train.accumulation);
    return (batches_per_epoch() + each - 1) / each;
  }

  LoaderOptions loader_options() const {
    return {.batch = config_.train.batch_size,
            .threads = matched_workers(config_.train.num_workers),
            .ahead = static_cast<int>(config_.train.prefetch_factor),
            .shuffled = config_.data.shuffle,
            .seed = static_cast<std::uint64_t>(config_.train.seed),
            .first_epoch = position_.epoch,
            .first_batch = position_.batch,
            .epochs = static_cast<std::uint64_t>(config_.train.epochs)};
  }
  Delivery delivery() const {
    constexpr double kGigabyte = 1e9;
    return {device_, config_.train.pin_memory, static_cast<std::size_t>(config_.data.device_cache_gb * kGigabyte)};
  }

  base::Result<Trained> steps() {
    const auto begun = Clock::now();
    last_told_ = begun;
    const auto first_step = position_.step;
    if (const auto opened = open_batches(); !opened) return std::unexpected(opened.error());
    while (!is_stopped()) {
      const auto more = step();
      if (!more) return std::unexpected(more.error());
      if (!*more) break;
    }
    if (const auto told = tell_progress(); !told) return std::unexpected(told.error());
    if (saved_step_ != position_.step) {
      if (const auto saved = save(); !saved) return std::unexpected(saved.error());
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    return Trained{position_.step - first_step, position_.epoch >= static_cast<std::uint64_t>(config_.train.epochs),
                   seconds};
  }

  bool is_stopped() const { return options_.stop != nullptr && options_.stop->load(); }

  base::Result<void> open_batches() {
    batches_.reset();
    auto batches = make_batches(*data_, loader_options(), delivery());
    if (!batches) return std::unexpected(batches.error());
    batches_ = *std::move(batches);
    return {};
  }

  /// One step of the optimiser: as many batches as make it. False when there are no more.
  base::Result<bool> step() {
    const auto parts =
        std::min(static_cast<std::uint64_t>(config_.train.accumulation), batches_per_epoch() - position_.batch);
    rate_ = rate_at(config_.optimizer, position_.step, steps_in_all());
    step_->optimizer().set_rate(rate_);
    for (;;) {
      try {
        const auto made = make_step(parts);
        if (!made || !*made) return made;
        return advance(parts);
      } catch (const c10::OutOfMemoryError&) {
        if (const auto smaller = begin_again(); !smaller) return std::unexpected(smaller.error());
      }
    }
  }

  std::uint64_t steps_in_all() const { return steps_per_epoch() * static_cast<std::uint64_t>(config_.train.epochs); }

  /// False when there are no batches any more.
  base::Result<bool> make_step(std::uint64_t parts) {
    for (std::uint64_t part = 0; part < parts; ++part) {
      const auto batch = batches_->next();
      if (!batch) return std::unexpected(batch.error());
      if (!*batch) return false;
      if (auto* const graph = graph_for(**batch)) {
        graph->run(**batch);
        return true;
      }
      step_->add(**batch, 1.0 / static_cast<double>(parts));
    }
    step_->apply();
    return true;
  }

  bool may_have_graph() const {
    return config_.train.compile_model && device_.is_cuda() && config_.train.accumulation == 1 && step_->pieces() == 1;
  }

  /// The whole step as a graph, recorded with the first batch; nothing where that cannot be.
  StepGraph* graph_for(const Fields& batch) {
    if (!may_have_graph() || has_no_graph_) return nullptr;
    if (!graph_) {
      auto graph = StepGraph::record(*step_, batch);
      has_no_graph_ = !graph;
      listener_.noted(graph ? "each step is one CUDA graph" : "no CUDA graph of the step: " + graph.error().message);
      if (graph) graph_ = *std::move(graph);
    }
    return graph_.get();
  }

  /// The memory of the device was too small: the same step, from the same samples, in smaller pieces.
  base::Result<void> begin_again() {
    graph_.reset();
    step_->forget();
    if (!step_->halve(config_.train.batch_size))
      return base::fail(Error::Kind::unavailable, "the memory of the device is too small for a single sample",
                        "Take a smaller model, or close what else uses the device ('fullwatt doctor' names it).");
    if (!device_.is_cpu()) at::accelerator::emptyCache();
    listener_.noted("out of memory: each batch is computed in " + std::to_string(step_->pieces()) +
                    " pieces from now on, with the same gradients (batch norm sees the pieces)");
    return open_batches();
  }

  base::Result<bool> advance(std::uint64_t parts) {
    ++position_.step;
    position_.batch += parts;
    samples_ += static_cast<std::int64_t>(parts) * config_.train.batch_size;
    const bool is_end = position_.batch >= batches_per_epoch();
    if (is_end || position_.step % static_cast<std::uint64_t>(config_.train.log_every) == 0) {
      if (const auto told = tell_progress(); !told) return std::unexpected(told.error());
    }
    if (!is_end) return true;
    position_.batch = 0;
    ++position_.epoch;
    if (position_.epoch % static_cast<std::uint64_t>(config_.output.every_epochs) == 0) {
      if (const auto saved = save(); !saved) return std::unexpected(saved.error());
    }
    return position_.epoch < static_cast<std::uint64_t>(config_.train.epochs);
  }

  base::Result<void> tell_progress() {
    if (samples_ == 0) return {};
    const auto loss = step_->take_mean_loss();
    if (!loss) return {};
    if (!std::isfinite(*loss))
      return base::fail(
          Error::Kind::bad_input, "the loss is no number any more at step " + std::to_string(position_.step),
          saved_step_ > 0 ? "The last checkpoint is whole: " + checkpoint_path(config_.output.folder, saved_step_)
                          : "A smaller optimizer.lr, or train.clip, may help.");
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_told_).count();
    listener_.progressed(
        {position_.epoch, position_.step, *loss, seconds > 0 ? static_cast<double>(samples_) / seconds : 0, rate_});
    last_told_ = now;
    samples_ = 0;
    return {};
  }

  base::Result<void> save() {
    constexpr std::size_t kKept = 3;
    const auto path = checkpoint_path(config_.output.folder, position_.step);
    if (const auto saved = save_checkpoint(path, step_->state(), device_, position_); !saved) return saved;
    saved_step_ = position_.step;
    const auto all = checkpoints_in(config_.output.folder);
    std::error_code ignored;
    for (std::size_t i = kKept; i < all.size(); ++i) fs::remove(all[i], ignored);
    listener_.saved(path);
    return {};
  }

  const Config& config_;
  const TrainOptions& options_;
  const TrainListener& listener_;
  at::Device device_ = at::kCPU;
  std::optional<c10::StreamGuard> on_stream_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<Step> step_;
  std::unique_ptr<StepGraph> graph_;
  bool has_no_graph_ = false;  ///< it was tried
  std::unique_ptr<DataSet> data_;
  std::unique_ptr<Batches> batches_;
  Position position_;
  std::string resumed_;
  std::uint64_t saved_step_ = 0;
  std::int64_t samples_ = 0;  ///< since progress was told
  double rate_ = 0;
  Clock::time_point last_told_;
};

}  // namespace

base::Result<Trained> train(const Config& config, const TrainOptions& options, const TrainListener& listener) {
  try {
    return Training(config, options, listener).run();
  } catch (const c10::Error& error) {
    return base::fail(Error::Kind::unavailable, "torch: " + base::printable(error.what_without_backtrace(), 400));
  } catch (const std::exception& error) {  // of the libraries below torch
    return base::fail(Error::Kind::unavailable, "torch: " + base::printable(error.what(), 400));
  }
}

}  // namespace fullwatt::engine
