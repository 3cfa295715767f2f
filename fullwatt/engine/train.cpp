#include "fullwatt/engine/train.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include <ATen/TensorIndexing.h>
#include <ATen/ops/tensor.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/checkpoint.hpp"
#include "fullwatt/engine/device_check.hpp"
#include "fullwatt/engine/gpu_card.hpp"
#include "fullwatt/engine/preparation.hpp"
#include "fullwatt/engine/schedule.hpp"

namespace fullwatt::engine {
namespace {

namespace fs = std::filesystem;
using base::Error;
using Clock = std::chrono::steady_clock;

constexpr const char* kTorchFailed =
    "Do the shapes and types of the data fit the settings under model:? 'fullwatt doctor' looks at the GPU.";

/// From its first step, or the one after a checkpoint's, to its last.
class Training {
 public:
  Training(const Config& config, const TrainOptions& options, const TrainListener& listener, Preparation& prepared)
      : config_(config), options_(options), listener_(listener), prepared_(prepared) {}

  base::Result<Trained> run() {
    if (const auto done = go_on(); !done) return std::unexpected(done.error());
    if (const auto done = agree(); !done) return std::unexpected(done.error());
    tell_start();
    auto trained = steps();
    if (!trained && saved_step_ > 0)
      trained.error().remedy += " The last checkpoint is whole: " + checkpoint_path(config_.output.folder, saved_step_);
    return trained;
  }

 private:
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
      const auto position = load_checkpoint(path, accelerator().step().state(), accelerator().device());
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

  Accelerator& accelerator() const { return prepared_.accelerator(); }
  bool is_first() const { return options_.place.rank == 0; }

  /// All processes begin where the first one is, and draw random numbers of their own.
  base::Result<void> agree() {
    auto* const group = accelerator().group();
    if (group == nullptr) return {};
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : accelerator().step().state()) tensors.push_back(tensor);
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
    for (const auto& parameter : accelerator().step().optimizer().parameters()) parameters += parameter.numel();
    listener_.started({.device = accelerator().device().str(),
                       .precision = std::string(to_string(accelerator().step().settings().precision)),
                       .parameters = parameters,
                       .samples = prepared_.data().samples(),
                       .steps_per_epoch = steps_per_epoch(),
                       .effective_batch = config_.train.batch_size * config_.train.accumulation * options_.place.size,
                       .processes = options_.place.size,
                       .first_step = position_.step,
                       .resumed = resumed_,
                       .otherwise = prepared_.otherwise()});
    for (const auto& line : prepared_.told_of_kernels()) listener_.noted(line);
  }

  std::uint64_t steps_per_epoch() const {
    const auto each = static_cast<std::uint64_t>(config_.train.accumulation);
    return (prepared_.batches_per_epoch() + each - 1) / each;
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
    if (auto* const group = accelerator().group()) {
      if (const auto met = group->barrier(); !met) return std::unexpected(met.error());
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    return Trained{position_.step - first_step, position_.epoch >= static_cast<std::uint64_t>(config_.train.epochs),
                   seconds};
  }

  bool wants_stop() const {
    const auto* const recording = accelerator().recording();
    return (options_.stop != nullptr && options_.stop->load()) || (recording != nullptr && recording->wants_stop());
  }

  /// All processes after the same step, when one of them is to stop.
  base::Result<bool> is_stopped() {
    auto* const sum = accelerator().step().sum();
    return sum != nullptr ? sum->is_stop_wanted() : wants_stop();
  }

  base::Result<void> open_batches() {
    batches_.reset();
    auto options = accelerator().loader_options();
    options.first_epoch = position_.epoch;
    options.first_batch = position_.batch;
    try {
      auto batches = make_batches(prepared_.data(), options, delivery());
      if (!batches) return std::unexpected(batches.error());
      batches_ = *std::move(batches);
      return {};
    } catch (const c10::OutOfMemoryError&) {
      if (!stream_instead()) throw;
      return open_batches();
    }
  }

  Delivery delivery() const {
    auto delivery = accelerator().delivery();
    for (const auto& [field, limit] : prepared_.task().limits()) {
      auto& least = delivery.limits.try_emplace(field, limit).first->second;
      least = std::min(least, limit);
    }
    if (is_streaming_) delivery.cache_bytes = 0;
    return delivery;
  }

  /// One step of the optimiser: as many batches as make it. False when there are no more.
  base::Result<bool> step() {
    const auto parts = std::min(static_cast<std::uint64_t>(config_.train.accumulation),
                                prepared_.batches_per_epoch() - position_.batch);
    rate_ = rate_at(config_.optimizer, position_.step, steps_in_all());
    accelerator().step().optimizer().set_rate(rate_);
    if (auto* const sum = accelerator().step().sum()) sum->want_stop(wants_stop());
    for (;;) {
      try {
        const auto made = accelerator().make_step(*batches_, parts);
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
    if (has_told_of_graph_ || accelerator().told_of_graph().empty()) return;
    listener_.noted(accelerator().told_of_graph());
    has_told_of_graph_ = true;
  }

  /// Once, after the first step: that everything is where it is said to be.
  base::Result<void> verify_device() {
    if (has_verified_) return {};
    has_verified_ = true;
    if (const auto here =
            must_be_on(accelerator().device(), accelerator().step().state(),
                       "A model registers all its parameters and buffers, and leaves them where they are.");
        !here)
      return here;
    const auto found = check_device(prepared_.task().network(), accelerator().device());
    constexpr std::uint64_t kMegabyte = 1'000'000;
    const auto device = accelerator().device();
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
    if (config_.data.device_cache_gb || is_streaming_ || !is_cached(prepared_.data(), delivery())) return false;
    is_streaming_ = true;
    listener_.noted("out of memory: the samples are not kept on the device any more");
    return true;
  }

  /// The memory of the device was too small: the same step, from the same samples, in smaller pieces.
  base::Result<void> begin_again() {
    if (stream_instead()) {
      accelerator().begin_step_again();
      return open_batches();
    }
    if (!accelerator().halve())
      return base::fail(Error::Kind::unavailable, "the memory of the device is too small for a single sample",
                        "Take a smaller model, or close what else uses the device ('fullwatt doctor' names it).");
    listener_.noted("out of memory: each batch is computed in " + std::to_string(accelerator().step().pieces()) +
                    " pieces from now on, with the same gradients (batch norm sees the pieces)");
    return open_batches();
  }

  base::Result<bool> advance(std::uint64_t parts) {
    ++position_.step;
    position_.batch += parts;
    samples_ += static_cast<std::int64_t>(parts) * config_.train.batch_size * options_.place.size;
    const bool is_end = position_.batch >= prepared_.batches_per_epoch();
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
    if (auto* const group = accelerator().group()) {
      for (const auto& sum : accelerator().step().loss_sums()) {
        if (const auto added = group->all_reduce(sum); !added) return added;
      }
    }
    const auto loss = accelerator().step().take_mean_loss();
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
    if (accelerator().repeats_batch()) return {};
    if (auto* const group = accelerator().group()) {
      if (const auto met = group->barrier(); !met) return met;
    }
    if (!is_first()) {
      saved_step_ = position_.step;
      draw_own_numbers();
      accelerator().begin_random_anew();
      return {};
    }
    const auto path = checkpoint_path(config_.output.folder, position_.step);
    if (const auto saved = save_checkpoint(path, accelerator().step().state(), accelerator().device(), position_);
        !saved)
      return saved;
    saved_step_ = position_.step;
    accelerator().begin_random_anew();
    remove_old_checkpoints(config_.output.folder);
    listener_.saved(path);
    return {};
  }

  const Config& config_;
  const TrainOptions& options_;
  const TrainListener& listener_;
  Preparation& prepared_;
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
    auto prepared = Preparation::make(config, options);
    if (!prepared) return std::unexpected(prepared.error());
    return Training(config, options, listener, *prepared).run();
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
