#include "fullwatt/engine/train.hpp"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/checkpoint.hpp"
#include "fullwatt/engine/data/loader.hpp"
#include "fullwatt/engine/task.hpp"
#include "fullwatt/engine/tensors.hpp"

namespace fullwatt::engine {
namespace {

namespace fs = std::filesystem;
using base::Error;
using Clock = std::chrono::steady_clock;

/// Products and convolutions in a shorter type while it lives.
class Autocast {
 public:
  Autocast(at::DeviceType device, Precision precision) : device_(device), is_on_(precision != Precision::fp32) {
    if (!is_on_) return;
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
    at::autocast::set_autocast_enabled(device_, true);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast() {
    if (!is_on_) return;
    at::autocast::set_autocast_enabled(device_, false);
    at::autocast::clear_cache();
  }

 private:
  at::DeviceType device_;
  bool is_on_;
};

/// The mean of the losses since it was last asked for; they stay on the device until then.
class MeanLoss {
 public:
  void add(const at::Tensor& loss, double weight) {
    const auto part = loss.detach() * weight;
    sum_ = sum_.defined() ? sum_ + part : part;
    weight_ += weight;
  }
  double take() {
    const double mean = weight_ > 0 ? sum_.item<double>() / weight_ : 0;
    sum_ = at::Tensor();
    weight_ = 0;
    return mean;
  }

 private:
  at::Tensor sum_;
  double weight_ = 0;
};

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
    device_ = has_gpu && config_.hardware.device != "cpu" ? at::kCUDA : at::kCPU;
    precision_ = config_.train.amp;
    if (precision_ == Precision::automatic) precision_ = device_.is_cuda() ? Precision::bf16 : Precision::fp32;
    if (precision_ == Precision::fp16)
      return base::fail(Error::Kind::bad_input, "train.amp: fp16 needs a gradient scaler, which is not built yet",
                        "Set train.amp to bf16 or false.");
    auto& context = at::globalContext();
    context.setBenchmarkCuDNN(config_.hardware.cudnn_benchmark && !config_.hardware.deterministic);
    const bool may_shorten = device_.is_cuda() && config_.hardware.allow_tf32;  // CPUs may shorten to bfloat16
    context.setFloat32MatmulPrecision(may_shorten ? "high" : "highest");
    context.setAllowTF32CuDNN(may_shorten);
    context.setDeterministicAlgorithms(config_.hardware.deterministic, true);
    return {};
  }

  base::Result<void> make_network() {
    at::manual_seed(static_cast<std::uint64_t>(config_.train.seed));
    auto task = make_task(config_.model);
    if (!task) return std::unexpected(task.error());
    task_ = *std::move(task);
    if (!options_.initial.empty()) {
      if (const auto loaded = load_weights(options_.initial, task_->network()); !loaded) return loaded;
    }
    task_->network().to(device_);
    task_->network().train();
    if (config_.train.channels_last) {
      for (auto& parameter : task_->network().parameters()) {
        if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
      }
    }
    optimizer_ = std::make_unique<AdamW>(task_->network().parameters(), config_.optimizer);
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
      const auto position = load_checkpoint(path, task_->network(), *optimizer_);
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
    for (const auto& parameter : optimizer_->parameters()) parameters += parameter.numel();
    listener_.started({.device = device_.str(),
                       .precision = std::string(to_string(precision_)),
                       .parameters = parameters,
                       .samples = data_->samples(),
                       .steps_per_epoch = groups_per_epoch(),
                       .effective_batch = config_.train.batch_size * config_.train.accumulation,
                       .workers = matched_workers(config_.data.workers),
                       .resumed = resumed_});
  }

  std::uint64_t batches_per_epoch() const {
    return static_cast<std::uint64_t>(data_->samples() / config_.train.batch_size);
  }
  std::uint64_t groups_per_epoch() const {
    const auto each = static_cast<std::uint64_t>(config_.train.accumulation);
    return (batches_per_epoch() + each - 1) / each;
  }

  base::Result<Trained> steps() {
    Loader loader(*data_, {.batch = config_.train.batch_size,
                           .threads = matched_workers(config_.data.workers),
                           .ahead = static_cast<int>(config_.data.ahead),
                           .shuffled = config_.data.shuffle,
                           .seed = static_cast<std::uint64_t>(config_.train.seed),
                           .first_epoch = position_.epoch,
                           .first_batch = position_.batch,
                           .epochs = static_cast<std::uint64_t>(config_.train.epochs)});
    const auto begun = Clock::now();
    last_told_ = begun;
    const auto first_step = position_.step;
    while (!is_stopped()) {
      const auto more = step(loader);
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

  /// One step of the optimiser: as many batches as make it. False when there are no more.
  base::Result<bool> step(Loader& loader) {
    const auto parts =
        std::min(static_cast<std::uint64_t>(config_.train.accumulation), batches_per_epoch() - position_.batch);
    optimizer_->forget_gradients();
    for (std::uint64_t part = 0; part < parts; ++part) {
      auto batch = loader.next();
      if (!batch) return std::unexpected(batch.error());
      if (!*batch) return false;
      add_gradients(**batch, 1.0 / static_cast<double>(parts));
    }
    if (config_.train.clip > 0) clip_gradients(optimizer_->parameters(), config_.train.clip);
    optimizer_->step();
    return advance(parts);
  }

  void add_gradients(const Loader::Batch& batch, double weight) {
    const auto fields = to_device(batch);
    at::Tensor loss;
    {
      const Autocast autocast(device_.type(), precision_);
      loss = task_->loss(fields);
    }
    (weight == 1 ? loss : loss * weight).backward();
    mean_loss_.add(loss, weight);
    samples_ += batch.samples();
  }

  /// Bytes become numbers from 0 to 1, as pictures are trained on; other fractions float32.
  Fields to_device(const Loader::Batch& batch) const {
    constexpr double kBrightest = 255;
    Fields fields;
    for (std::size_t i = 0; i < data_->fields().size(); ++i) {
      const auto& field = data_->fields()[i];
      auto shape = field.shape;
      shape.insert(shape.begin(), batch.samples());
      auto tensor = at::from_blob(batch.field(i), shape, *scalar_type(field.dtype)).to(device_);
      if (tensor.scalar_type() == at::kByte) tensor = tensor.to(at::kFloat).div_(kBrightest);
      if (tensor.is_floating_point()) tensor = tensor.to(at::kFloat);
      if (config_.train.channels_last && tensor.dim() == 4) tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
      fields.emplace(field.name, tensor);
    }
    return fields;
  }

  base::Result<bool> advance(std::uint64_t parts) {
    ++position_.step;
    position_.batch += parts;
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
    const double loss = mean_loss_.take();
    if (!std::isfinite(loss))
      return base::fail(
          Error::Kind::bad_input, "the loss is no number any more at step " + std::to_string(position_.step),
          saved_step_ > 0 ? "The last checkpoint is whole: " + checkpoint_path(config_.output.folder, saved_step_)
                          : "A smaller optimizer.lr, or train.clip, may help.");
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_told_).count();
    listener_.progressed(
        {position_.epoch, position_.step, loss, seconds > 0 ? static_cast<double>(samples_) / seconds : 0});
    last_told_ = now;
    samples_ = 0;
    return {};
  }

  base::Result<void> save() {
    constexpr std::size_t kKept = 3;
    const auto path = checkpoint_path(config_.output.folder, position_.step);
    if (const auto saved = save_checkpoint(path, task_->network(), *optimizer_, position_); !saved) return saved;
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
  Precision precision_ = Precision::fp32;
  std::unique_ptr<Task> task_;
  std::unique_ptr<DataSet> data_;
  std::unique_ptr<AdamW> optimizer_;
  Position position_;
  std::string resumed_;
  std::uint64_t saved_step_ = 0;
  MeanLoss mean_loss_;
  std::int64_t samples_ = 0;  ///< since progress was told
  Clock::time_point last_told_;
};

}  // namespace

base::Result<Trained> train(const Config& config, const TrainOptions& options, const TrainListener& listener) {
  try {
    return Training(config, options, listener).run();
  } catch (const c10::Error& error) {
    return base::fail(Error::Kind::unavailable, "torch: " + base::printable(error.what_without_backtrace(), 400));
  }
}

}  // namespace fullwatt::engine
