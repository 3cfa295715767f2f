#include "fullwatt/engine/preparation.hpp"

#include <algorithm>

#include "fullwatt/base/text.hpp"
#include "fullwatt/engine/checkpoint.hpp"
#include "fullwatt/engine/cross_entropy.hpp"
#include "fullwatt/engine/fused_norm.hpp"
#include "fullwatt/engine/open_samples.hpp"
#include "fullwatt/engine/pictures.hpp"
#include "fullwatt/engine/run_recording.hpp"

namespace fullwatt::engine {

base::Result<Preparation> Preparation::make(const Config& config, const TrainOptions& options) {
  RunRecording::of_this_process(options.place.rank);  // before torch asks for a GPU: the driver would open another
  Preparation made(config);
  if (const auto done = made.make_network(options); !done) return std::unexpected(done.error());
  if (const auto done = made.open_data(options.place); !done) return std::unexpected(done.error());
  return made;
}

base::Result<void> Preparation::make_network(const TrainOptions& options) {
  at::manual_seed(static_cast<std::uint64_t>(config_->train.seed));
  auto task = make_task(config_->model);
  if (!task) return std::unexpected(task.error());
  task_ = *std::move(task);
  ask_model();
  if (!options.initial.empty()) {
    if (const auto loaded = load_tensors(options.initial, weights_of(task_->network())); !loaded) return loaded;
  }
  auto accelerator = Accelerator::make(
      task_->network(), [task = task_.get()](const Fields& batch) { return task->loss(batch); }, in_force_,
      options.place);
  if (!accelerator) return std::unexpected(accelerator.error());
  accelerator_ = *std::move(accelerator);
  fuse();
  return {};
}

/// What it decides where the configuration says nothing, and what it cannot do.
void Preparation::ask_model() {
  auto& normalisation = in_force_.data.normalisation;
  if (normalisation.mean.empty()) normalisation = task_->normalisation();
  if (config_->train.activation_checkpointing) in_force_.train.activation_checkpointing = task_->recompute();
}

/// The part of train.compile_model that is not the graph.
void Preparation::fuse() {
  const auto device = accelerator_->device();
  const auto& settings = accelerator_->step().settings();
  if (!config_->train.compile_model || !device.is_cuda()) return;
  if (task_->fuse_norms({})) fused_.push_back({"batch norms", fuse_norms(*task_, device, settings)});
  if (task_->fuse_loss({})) fused_.push_back({"loss", fuse_loss(*task_, device, settings)});
}

base::Result<void> Preparation::open_data(const Place& place) {
  auto data = open_samples(*config_, *task_);
  if (!data) return std::unexpected(data.error());
  data_ = *std::move(data);
  batches_per_epoch_ = static_cast<std::uint64_t>(data_->samples() / (config_->train.batch_size * place.size));
  if (batches_per_epoch_ == 0)
    return base::fail(base::Error::Kind::bad_input,
                      "there are " + std::to_string(data_->samples()) +
                          " samples, fewer than train.batch_size: " + std::to_string(config_->train.batch_size),
                      "Take a smaller batch.");
  return check_pictures(in_force_, *task_, *data_);
}

std::vector<std::string> Preparation::told_of_kernels() const {
  std::vector<std::string> told;
  for (const auto& [name, how] : fused_) {
    if (how) {
      told.push_back("fused " + name + ": " + *how);
    } else {
      const auto& [kind, message, remedy] = how.error();
      told.push_back("no fused " + name + ": " + base::printable(message, 400) + (remedy.empty() ? "" : ". " + remedy));
    }
  }
  return told;
}

std::vector<Otherwise> Preparation::otherwise() const {
  auto found = accelerator_->otherwise(*data_);
  for (const auto& [name, how] : fused_) {  // the graph is told already
    auto& compile = *std::ranges::find(found, "train.compile_model", &Otherwise::name);
    if (how) {
      compile.value = (compile.value == "false" ? "" : compile.value + ", ") + "fused " + name;
    } else {
      compile.why += "; no fused " + name + ", as told below";
    }
  }
  const auto given = settings_of(*config_);
  const auto now = settings_of(in_force_);
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i] == now[i]) continue;
    const bool is_recomputation = now[i].first == "train.activation_checkpointing";
    found.push_back({now[i].first, now[i].second,
                     is_recomputation ? "the model " + config_->model.name + " has nothing worth computing again"
                                      : "the model's own"});
  }
  return found;
}

}  // namespace fullwatt::engine
