#include "fullwatt/engine/train.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include <ATen/TensorIndexing.h>
#include <ATen/ops/tensor.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/accelerator.hpp"
#include "fullwatt/engine/checkpoint.hpp"
#include "fullwatt/engine/device_check.hpp"
#include "fullwatt/engine/fused_norm.hpp"
#include "fullwatt/engine/gpu_card.hpp"
#include "fullwatt/engine/open_samples.hpp"
#include "fullwatt/engine/pictures.hpp"
#include "fullwatt/engine/schedule.hpp"

namespace fullwatt::engine {
namespace {

namespace fs = std::filesystem;
using base::Error;
using Clock = std::chrono::steady_clock;

constexpr const char* kTorchFailed =
    "Do the shapes and types of the data fit the settings under model:? 'fullwatt doctor' looks at the GPU.";

/// Everything that one training holds.
class Training {
 public:
  Training(const Config& config, const TrainOptions& options, const TrainListener& listener)
      : config_(config), options_(options), listener_(listener) {}

  base::Result<Trained> run() {
    for (const auto step : {&Training::make_network, &Training::open_data, &Training::go_on, &Training::agree}) {
      if (const auto done = (this->*step)(); !done) return std::unexpected(done.error());
    }
    tell_start();
    auto trained = steps();
    if (!trained && saved_step_ > 0)
      trained.error().remedy += " The last checkpoint is whole: " + checkpoint_path(config_.output.folder, saved_step_);
    return trained;
  }

 private:
  base::Result<void> make_network() {
    at::manual_seed(static_cast<std::uint64_t>(config_.train.seed));
    auto task = make_task(config_.model);
    if (!task) return std::unexpected(task.error());
    task_ = *std::move(task);
    ask_model();
    if (!options_.initial.empty()) {
      if (const auto loaded = load_tensors(options_.initial, weights_of(task_->network())); !loaded) return loaded;
    }
    auto accelerator = Accelerator::make(
        task_->network(), [this](const Fields& batch) { return task_->loss(batch); }, in_force_, options_.place);
    if (!accelerator) return std::unexpected(accelerator.error());
    accelerator_ = *std::move(accelerator);
    fuse_norms();
    return {};
  }

  /// The part of train.compile_model that is not the graph.
  void fuse_norms() {
    if (!config_.train.compile_model || !accelerator_->device().is_cuda() || !task_->fuse({})) return;
    fused_ = engine::fuse_norms(*task_, accelerator_->device(), accelerator_->step().settings());
  }

  /// What it decides where the configuration says nothing, and what it cannot do.
  void ask_model() {
    in_force_ = config_;
    auto& normalisation = in_force_.data.normalisation;
    if (normalisation.mean.empty()) normalisation = task_->normalisation();
    if (config_.train.activation_checkpointing) in_force_.train.activation_checkpointing = task_->recompute();
  }

  base::Result<void> open_data() {
    auto data = open_samples(config_, *task_);
    if (!data) return std::unexpected(data.error());
    data_ = *std::move(data);
    if (batches_per_epoch() == 0)
      return base::fail(Error::Kind::bad_input,
                        "there are " + std::to_string(data_->samples()) +
                            " samples, fewer than train.batch_size: " + std::to_string(config_.train.batch_size),
                        "Take a smaller batch.");
    return check_pictures(in_force_, *task_, *data_);
  }

  /// From the newest checkpoint that can be read.
  base::Result<void> go_on() {
    if (!is_first()) return {};
    std::error_code failure;
    fs::create_directories(config_.output.folder, failure);
    if (failure)
      return base::fail(Error::Kind::refused, base::printable(config_.output.folder, 300) + ": " + failure.message(),
                        "Name another folder under output: folder.");
    if (options_.anew) return put_aside();
    std::optional<Error> newest;
    for (const auto& path : checkpoints_in(config_.output.folder)) {
      const auto position = load_checkpoint(path, accelerator_->step().state(), accelerator_->device());
      if (position) {
        position_ = *position;
        saved_step_ = position->step;
        resumed_ = path;
        return {};
      }
      if (!newest) newest = position.error();
    }
    if (newest) return std::unexpected(*newest);  // not to train over it
    return {};
  }

  /// What an earlier training left: it would be taken for this one's.
  base::Result<void> put_aside() {
    const auto folder = put_checkpoints_aside(config_.output.folder);
    if (!folder) return std::unexpected(folder.error());
    if (!folder->empty()) listener_.noted("the checkpoints of an earlier training are in " + *folder);
    return {};
  }

  bool is_first() const { return options_.place.rank == 0; }

  /// All processes begin where the first one is, and draw random numbers of their own.
  base::Result<void> agree() {
    auto* const group = accelerator_->group();
    if (group == nullptr) return {};
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : accelerator_->step().state()) tensors.push_back(tensor);
    const auto where =
        at::tensor({static_cast<std::int64_t>(position_.epoch), static_cast<std::int64_t>(position_.batch),
                    static_cast<std::int64_t>(position_.step)});
    tensors.push_back(where);
    if (const auto sent = group->broadcast(tensors); !sent) return sent;
    const auto number = [&](std::int64_t i) { return static_cast<std::uint64_t>(where[i].item<std::int64_t>()); };
    position_ = {number(0), number(1), number(2)};
    draw_own_numbers();
    return {};
  }

  /// A checkpoint holds the random state of the first process. The others begin anew at each, so that they go on from
  /// it as if nothing had happened.
  void draw_own_numbers() {
    constexpr std::uint64_t kFarApart = 1'000'003;
    if (!is_first())
      at::manual_seed(static_cast<std::uint64_t>(config_.train.seed) + position_.step +
                      kFarApart * static_cast<std::uint64_t>(options_.place.rank));
  }

  void tell_start() {
    if (!is_first()) return;
    std::int64_t parameters = 0;
    for (const auto& parameter : accelerator_->step().optimizer().parameters()) parameters += parameter.numel();
    listener_.started({.device = accelerator_->device().str(),
                       .precision = std::string(to_string(accelerator_->step().settings().precision)),
                       .parameters = parameters,
                       .samples = data_->samples(),
                       .steps_per_epoch = steps_per_epoch(),
                       .effective_batch = config_.train.batch_size * config_.train.accumulation * options_.place.size,
                       .processes = options_.place.size,
                       .first_step = position_.step,
                       .resumed = resumed_,
                       .otherwise = otherwise()});
    if (fused_) listener_.noted(told_of_norms());
  }

  std::string told_of_norms() const {
    if (!*fused_) {
      const auto& [kind, message, remedy] = fused_->error();
      return "no fused batch norms: " + base::printable(message, 400) + (remedy.empty() ? "" : ". " + remedy);
    }
    return "fused batch norms: " + std::to_string((*fused_)->fitting) + " of " + std::to_string((*fused_)->all);
  }

  /// The graph is told already.
  void add_norms(Otherwise& compile) const {
    if (!*fused_) {
      compile.why += "; no fused batch norms, as told below";
    } else {
      compile.value = (compile.value == "false" ? "" : compile.value + ", ") + "fused batch norms";
    }
  }

  std::vector<Otherwise> otherwise() const {
    auto found = accelerator_->otherwise(*data_);
    if (fused_) add_norms(*std::ranges::find(found, "train.compile_model", &Otherwise::name));
    const auto given = settings_of(config_);
    const auto now = settings_of(in_force_);
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i] == now[i]) continue;
      const bool is_recomputation = now[i].first == "train.activation_checkpointing";
      found.push_back({now[i].first, now[i].second,
                       is_recomputation ? "the model " + config_.model.name + " has nothing worth computing again"
                                        : "the model's own"});
    }
    return found;
  }

  std::uint64_t batches_per_epoch() const {
    return static_cast<std::uint64_t>(data_->samples() / (config_.train.batch_size * options_.place.size));
  }
  std::uint64_t steps_per_epoch() const {
    const auto each = static_cast<std::uint64_t>(config_.train.accumulation);
    return (batches_per_epoch() + each - 1) / each;
  }

  base::Result<Trained> steps() {
    const auto begun = Clock::now();
    last_told_ = begun;
    const auto first_step = position_.step;
    if (const auto opened = open_batches(); !opened) return std::unexpected(opened.error());
    for (bool is_going = !wants_stop() || options_.place.size > 1; is_going;) {
      const auto more = step();
      if (!more) return std::unexpected(more.error());
      if (!*more) break;
      const auto stopped = is_stopped();
      if (!stopped) return std::unexpected(stopped.error());
      is_going = !*stopped;
    }
    if (const auto told = tell_progress(); !told) return std::unexpected(told.error());
    if (saved_step_ != position_.step) {
      if (const auto saved = save(); !saved) return std::unexpected(saved.error());
    }
    if (auto* const group = accelerator_->group()) {
      if (const auto met = group->barrier(); !met) return std::unexpected(met.error());
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    return Trained{position_.step - first_step, position_.epoch >= static_cast<std::uint64_t>(config_.train.epochs),
                   seconds};
  }

  bool wants_stop() const {
    const auto* const recording = accelerator_->recording();
    return (options_.stop != nullptr && options_.stop->load()) || (recording != nullptr && recording->wants_stop());
  }

  /// All processes after the same step, when one of them is to stop.
  base::Result<bool> is_stopped() {
    auto* const sum = accelerator_->step().sum();
    return sum != nullptr ? sum->is_stop_wanted() : wants_stop();
  }

  base::Result<void> open_batches() {
    batches_.reset();
    auto options = accelerator_->loader_options();
    options.first_epoch = position_.epoch;
    options.first_batch = position_.batch;
    try {
      auto batches = make_batches(*data_, options, delivery());
      if (!batches) return std::unexpected(batches.error());
      batches_ = *std::move(batches);
      return {};
    } catch (const c10::OutOfMemoryError&) {
      if (!stream_instead()) throw;
      return open_batches();
    }
  }

  Delivery delivery() const {
    auto delivery = accelerator_->delivery();
    for (const auto& [field, limit] : task_->limits()) {
      auto& least = delivery.limits.try_emplace(field, limit).first->second;
      least = std::min(least, limit);
    }
    if (is_streaming_) delivery.cache_bytes = 0;
    return delivery;
  }

  /// One step of the optimiser: as many batches as make it. False when there are no more.
  base::Result<bool> step() {
    const auto parts =
        std::min(static_cast<std::uint64_t>(config_.train.accumulation), batches_per_epoch() - position_.batch);
    rate_ = rate_at(config_.optimizer, position_.step, steps_in_all());
    accelerator_->step().optimizer().set_rate(rate_);
    if (auto* const sum = accelerator_->step().sum()) sum->want_stop(wants_stop());
    for (;;) {
      try {
        const auto made = accelerator_->make_step(*batches_, parts);
        if (!made || !*made) return made;
        tell_of_graph();
        if (const auto verified = verify_device(); !verified) return std::unexpected(verified.error());
        return advance(parts);
      } catch (const c10::OutOfMemoryError&) {
        if (const auto smaller = begin_again(); !smaller) return std::unexpected(smaller.error());
      }
    }
  }

  /// Once, after the first step.
  void tell_of_graph() {
    if (has_told_of_graph_ || accelerator_->told_of_graph().empty()) return;
    listener_.noted(accelerator_->told_of_graph());
    has_told_of_graph_ = true;
  }

  /// Once, after the first step: that everything is where it is said to be.
  base::Result<void> verify_device() {
    if (has_verified_) return {};
    has_verified_ = true;
    if (const auto here =
            must_be_on(accelerator_->device(), accelerator_->step().state(),
                       "A model registers all its parameters and buffers, and leaves them where they are.");
        !here)
      return here;
    const auto found = check_device(task_->network(), accelerator_->device());
    constexpr std::uint64_t kMegabyte = 1'000'000;
    const auto device = accelerator_->device();
    const auto where = device.str() + (device.is_cuda() ? ", " + gpu_card(device.index()).name : "");
    if (is_first())
      listener_.noted("verified after the first step: " + std::to_string(found.parameters) + " parameters and " +
                      std::to_string(found.buffers) + " buffers (" + std::to_string(found.bytes / kMegabyte) +
                      " MB) and the batches are on " + where);
    return {};
  }

  std::uint64_t steps_in_all() const { return steps_per_epoch() * static_cast<std::uint64_t>(config_.train.epochs); }

  /// Samples that are on the device without having been asked for make room there first; false where there are none.
  bool stream_instead() {
    if (config_.data.device_cache_gb || is_streaming_ || !is_cached(*data_, delivery())) return false;
    is_streaming_ = true;
    listener_.noted("out of memory: the samples are not kept on the device any more");
    return true;
  }

  /// The memory of the device was too small: the same step, from the same samples, in smaller pieces.
  base::Result<void> begin_again() {
    if (stream_instead()) {
      accelerator_->begin_step_again();
      return open_batches();
    }
    if (!accelerator_->halve())
      return base::fail(Error::Kind::unavailable, "the memory of the device is too small for a single sample",
                        "Take a smaller model, or close what else uses the device ('fullwatt doctor' names it).");
    listener_.noted("out of memory: each batch is computed in " + std::to_string(accelerator_->step().pieces()) +
                    " pieces from now on, with the same gradients (batch norm sees the pieces)");
    return open_batches();
  }

  base::Result<bool> advance(std::uint64_t parts) {
    ++position_.step;
    position_.batch += parts;
    samples_ += static_cast<std::int64_t>(parts) * config_.train.batch_size * options_.place.size;
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
    if (auto* const group = accelerator_->group()) {
      for (const auto& sum : accelerator_->step().loss_sums()) {
        if (const auto added = group->all_reduce(sum); !added) return added;
      }
    }
    const auto loss = accelerator_->step().take_mean_loss();
    if (!loss) return {};
    if (!std::isfinite(*loss))
      return base::fail(Error::Kind::bad_input,
                        "the loss is no number any more at step " + std::to_string(position_.step),
                        "A smaller optimizer.lr, or train.clip, may help.");
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_told_).count();
    if (is_first())
      listener_.progressed(
          {position_.epoch, position_.step, *loss, seconds > 0 ? static_cast<double>(samples_) / seconds : 0, rate_});
    last_told_ = now;
    samples_ = 0;
    return {};
  }

  base::Result<void> save() {
    if (accelerator_->repeats_batch()) return {};
    if (auto* const group = accelerator_->group()) {
      if (const auto met = group->barrier(); !met) return met;
    }
    if (!is_first()) {
      saved_step_ = position_.step;
      draw_own_numbers();
      accelerator_->begin_random_anew();
      return {};
    }
    const auto path = checkpoint_path(config_.output.folder, position_.step);
    if (const auto saved = save_checkpoint(path, accelerator_->step().state(), accelerator_->device(), position_);
        !saved)
      return saved;
    saved_step_ = position_.step;
    accelerator_->begin_random_anew();
    remove_old_checkpoints(config_.output.folder);
    listener_.saved(path);
    return {};
  }

  const Config& config_;
  const TrainOptions& options_;
  const TrainListener& listener_;
  Config in_force_;  ///< as the model takes it
  std::unique_ptr<Task> task_;
  std::unique_ptr<Accelerator> accelerator_;
  std::optional<base::Result<FusedNorms>> fused_;  ///< nothing where none are wanted
  std::unique_ptr<DataSet> data_;
  std::unique_ptr<Batches> batches_;
  Position position_;
  std::string resumed_;
  std::uint64_t saved_step_ = 0;
  std::int64_t samples_ = 0;  ///< since progress was told
  double rate_ = 0;
  bool has_told_of_graph_ = false;
  bool has_verified_ = false;
  bool is_streaming_ = false;  ///< the device has no room for all samples
  Clock::time_point last_told_;
};

}  // namespace

base::Result<Trained> train(const Config& config, const TrainOptions& options, const TrainListener& listener) {
  try {
    return Training(config, options, listener).run();
  } catch (const c10::OutOfMemoryError& error) {
    return base::fail(
        Error::Kind::unavailable,
        "the memory of the device is too small: " + base::printable(error.what_without_backtrace(), 200),
        "Take a smaller model, a smaller train.batch_size or data.device_cache_gb, or close what else uses "
        "the device ('fullwatt doctor' names it).");
  } catch (const c10::Error& error) {
    return base::fail(Error::Kind::unavailable, "torch: " + base::printable(error.what_without_backtrace(), 400),
                      kTorchFailed);
  } catch (const std::exception& error) {  // of the libraries below torch
    return base::fail(Error::Kind::unavailable, "torch: " + base::printable(error.what(), 400), kTorchFailed);
  }
}

}  // namespace fullwatt::engine
