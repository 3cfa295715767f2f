#include "fullwatt/engine/accelerator.hpp"

#include <algorithm>
#include <thread>

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>

#include "fullwatt/engine/device_check.hpp"
#include "fullwatt/engine/gpu_card.hpp"
#include "fullwatt/engine/recurrent.hpp"

namespace fullwatt::engine {
namespace {

/// Leaves cores for the training itself.
int matched_workers(std::int64_t wanted, int processes) {
  constexpr int kMost = 8;
  if (wanted > 0) return static_cast<int>(wanted);
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / (2 * processes), 1, kMost);
}

}  // namespace

base::Result<std::unique_ptr<Accelerator>> Accelerator::make(torch::nn::Module& network, Step::Loss loss,
                                                             const Config& config, const Place& place) {
  std::unique_ptr<Accelerator> made(new Accelerator(network, config, place));
  made->recording_ = RunRecording::of_this_process(place.rank);
  if (const auto chosen = made->choose_device(); !chosen) return std::unexpected(chosen.error());
  made->set_switches();
  network.to(made->device_);
  if (made->device_.is_cuda()) made->free_bytes_ = at::accelerator::getMemoryInfo(made->device_.index()).first;
  const auto precision = precision_for(config.train.amp, made->generation(), is_narrow_recurrent(network));
  made->step_ = std::make_unique<Step>(
      network, std::move(loss), config.optimizer,
      StepSettings{precision, config.train.clip, config.train.channels_last, config.augment, config.data.normalisation},
      made->device_);
  made->step_->record_by(made->recording_);
  if (place.size > 1) {
    auto group = Group::join(place, made->device_, std::chrono::seconds(config.hardware.timeout_seconds));
    if (!group) return std::unexpected(group.error());
    made->group_ = *std::move(group);
    made->step_->share(std::make_unique<GradientSum>(*made->group_, network.parameters()));
  }
  return made;
}

base::Result<void> Accelerator::choose_device() {
  const bool has_gpu = at::globalContext().hasCUDA();
  if (config_.hardware.device == "cuda" && !has_gpu)
    return base::fail(base::Error::Kind::unavailable, "hardware.device is cuda, and torch sees no GPU",
                      "'fullwatt doctor' says why.");
  if (!has_gpu || config_.hardware.device == "cpu") return {};
  const auto gpus = at::getNumGPUs();
  const auto mine = gpus == 1 ? 0 : static_cast<std::size_t>(place_.local_rank);  // Slurm may show each its own alone
  if (mine >= gpus)
    return base::fail(base::Error::Kind::unavailable,
                      "there is no GPU " + std::to_string(place_.local_rank) + " for this process",
                      "Start as many processes on a machine as it has GPUs.");
  device_ = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(mine));
  stream_.emplace(device_);
  return {};
}

int Accelerator::generation() const {
  return device_.is_cuda() ? gpu_card(device_.index()).generation : 0;
}

void Accelerator::set_switches() const {
  auto& context = at::globalContext();
  const auto& hardware = config_.hardware;
  context.setBenchmarkCuDNN(hardware.cudnn_benchmark && !hardware.deterministic);
  const bool may_shorten = device_.is_cuda() && hardware.allow_tf32;  // CPUs may shorten to bfloat16
  context.setFloat32MatmulPrecision(may_shorten ? "high" : "highest");
  context.setAllowTF32CuDNN(may_shorten);
  context.setDeterministicAlgorithms(hardware.deterministic, true);
  const bool is_half_on_cpu = device_.is_cpu() && config_.train.amp == Precision::fp16;
  context.setUserEnabledMkldnn(!is_half_on_cpu);  // it lacks LSTMs
}

LoaderOptions Accelerator::loader_options() const {
  return {.batch = config_.train.batch_size,
          .threads = matched_workers(config_.train.num_workers, place_.local_size),
          .ahead = static_cast<int>(config_.train.prefetch_factor),
          .shuffled = config_.data.shuffle,
          .seed = static_cast<std::uint64_t>(config_.train.seed),
          .part = place_.rank,
          .parts = place_.size,
          .epochs = static_cast<std::uint64_t>(config_.train.epochs)};
}

Delivery Accelerator::delivery() const {
  return {.device = device_,
          .is_pinned = config_.train.pin_memory,
          .limits = config_.data.limits,
          .cache_bytes = cache_room(config_.data.device_cache_gb, free_bytes_)};
}

base::Result<std::optional<Fields>> Accelerator::next(Batches& batches) {
  if (recording_ == nullptr) return batches.next();
  if (repeats_batch() && last_) return last_;
  const auto begun = RunRecording::now_ns();
  last_.reset();
  auto batch = batches.next();
  recording_->phase(RunRecording::Phase::data, begun);
  if (batch) last_ = *batch;
  return batch;
}

base::Result<bool> Accelerator::make_step(Batches& batches, std::uint64_t parts) {
  StepGraph* graph = nullptr;
  std::int64_t samples = 0;
  for (std::uint64_t part = 0; part < parts; ++part) {
    const auto batch = next(batches);
    if (!batch) return std::unexpected(batch.error());
    if (!*batch) return false;
    samples += samples_of(**batch);
    if (const auto here = check_inputs(**batch); !here) return std::unexpected(here.error());
    if (part == 0) graph = graph_for(**batch, parts);
    if (graph != nullptr) {
      graph->put(part, **batch);
    } else {
      step_->add(**batch, 1.0 / static_cast<double>(parts), part + 1 == parts);
    }
  }
  const auto begun = RunRecording::now_ns();
  if (graph != nullptr) {
    graph->run();
  } else if (const auto done = step_->apply(); !done) {
    return std::unexpected(done.error());
  }
  if (recording_ != nullptr) recording_->step(static_cast<std::uint64_t>(samples), begun);
  return true;
}

base::Result<void> Accelerator::check_inputs(const Fields& batch) const {
  return must_be_on(device_, batch, "Batches come from the loader, or are moved to the device before the step.");
}

void Accelerator::begin_step_again() {
  graph_.reset();
  step_->forget();
  if (!device_.is_cpu()) at::accelerator::emptyCache();
}

bool Accelerator::halve() {
  begin_step_again();
  return step_->halve(config_.train.batch_size);
}

void Accelerator::begin_random_anew() {
  if (!device_.is_cuda() || !has_recurrent_dropout(network_)) return;
  auto generator = at::globalContext().defaultGenerator(device_);
  generator.set_state(generator.get_state());
  graph_.reset();                 // the dropout of before is in it
  at::accelerator::emptyCache();  // or torch keeps its memory for ever, and takes as much again for the next one
}

bool Accelerator::may_have_graph() const {
  return config_.train.wants_graph() && device_.is_cuda() && parts_of_step() <= StepGraph::kMostParts &&
         step_->pieces() == 1 && place_.size == 1;
}

/// Recorded with the first batch; nothing where that cannot be, and for a shorter step at the end of an epoch.
StepGraph* Accelerator::graph_for(const Fields& batch, std::uint64_t parts) {
  if (!may_have_graph() || parts != parts_of_step()) return nullptr;
  if (!graph_ && may_record_) {
    auto graph = StepGraph::record(*step_, batch, parts_of_step());
    told_of_graph_ = graph ? "each step is one CUDA graph" : "no CUDA graph of the step: " + graph.error().message;
    may_record_ = graph.has_value();
    if (graph) graph_ = *std::move(graph);
  }
  return graph_.get();
}

std::vector<Otherwise> Accelerator::otherwise(const DataSet& data) const {
  std::vector<Otherwise> found;
  const auto tell = [&](bool is, const char* name, const std::string& value, const char* why) {
    if (is) found.push_back({name, value, why});
  };
  const bool on_gpu = device_.is_cuda();
  const auto& train = config_.train;
  const auto& hardware = config_.hardware;
  tell(hardware.device == "auto", "hardware.device", device_.str(),
       on_gpu ? "" : "torch sees no GPU; 'fullwatt doctor' says why");
  tell(train.amp == Precision::automatic, "train.amp", std::string(to_string(step_->settings().precision)),
       !on_gpu                                          ? "mixed precision seldom pays on a CPU"
       : step_->settings().precision == Precision::fp32 ? "narrow recurrent layers are slower in bfloat16"
       : generation() >= kAmpere                        ? ""
                                                        : "the card has no bfloat16");
  tell(train.num_workers == 0, "train.num_workers", std::to_string(loader_options().threads), "half of the CPUs");
  tell(hardware.cudnn_benchmark && hardware.deterministic, "hardware.cudnn_benchmark", "false",
       "hardware.deterministic is true");
  tell(train.pin_memory && !on_gpu, "train.pin_memory", "false", "there is no GPU to copy to");
  tell(train.non_blocking && (!on_gpu || !train.pin_memory), "train.non_blocking", "false",
       on_gpu ? "train.pin_memory is false" : "there is no GPU to copy to");
  tell(!train.non_blocking && on_gpu && train.pin_memory, "train.non_blocking", "true",
       "batches are copied beside the training in any case");
  tell(train.compile_model && may_have_graph(), "train.compile_model", "a CUDA graph of each step",
       "LibTorch has no compiler");
  tell(train.compile_model && !may_have_graph(), "train.compile_model", "false",
       !on_gpu                ? "LibTorch has no compiler, and only a GPU has graphs"
       : !train.wants_graph() ? "LibTorch has no compiler, and train.compile_mode wants no graph"
       : place_.size > 1      ? "LibTorch has no compiler, and steps of several processes are no graph"
                              : "LibTorch has no compiler, and a graph of so many batches would be too large");
  tell(hardware.allow_tf32 && generation() < kAmpere, "hardware.allow_tf32", "false",
       on_gpu ? "the card has no TF32" : "CPUs have no TF32");
  const auto& cache = config_.data.device_cache_gb;
  const bool cached = is_cached(data, delivery());
  tell(cache > 0 && !cached, "data.device_cache_gb", "0", "the samples are larger");
  tell(!cache, "data.device_cache_gb", cached ? "all samples" : "0",
       !on_gpu  ? "there is no GPU to keep them on"
       : cached ? "they take less than half of the free memory"
                : "the samples are larger than half of the free memory");
  return found;
}

}  // namespace fullwatt::engine
