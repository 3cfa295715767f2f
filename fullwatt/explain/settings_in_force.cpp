#include "fullwatt/explain/settings_in_force.hpp"

#include <cmath>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::explain {
namespace {

const std::string kCannotTell = "cannot be told from outside";

/// The loader that feeds the training; null when none was seen.
const LoaderFact* loader_of(const Evidence& evidence) {
  return evidence.facts.training_loader();
}

std::string yes_or_no(bool value) {
  return value ? "true" : "false";
}

template <class T>
InForce of_loader(const Evidence& evidence, std::optional<T> LoaderFact::* field) {
  const auto* loader = loader_of(evidence);
  if (loader == nullptr) return {{}, {}, "there is no DataLoader"};
  const auto& value = loader->*field;
  if (!value) return {{}, {}, kCannotTell};
  if constexpr (std::is_same_v<T, bool>) return {yes_or_no(*value), place_of(loader->site), {}};
  return {fmt::format("{}", *value), place_of(loader->site), {}};
}

/// The last line of the source that gives an attribute this value.
std::string assigned_at(const SourceFacts& source, std::string_view target, std::string_view value) {
  std::string place;
  for (const auto& file : source.files) {
    for (const auto& assignment : file.assignments) {
      if (!assignment.target.ends_with(target) || base::lower(assignment.value) != value) continue;
      place = place_of({file.path, assignment.line, assignment.function});
    }
  }
  return place;
}

InForce of_setting(const Evidence& evidence, const SourceFacts& source, const std::string& name,
                   std::string_view attribute) {
  const auto value = evidence.facts.setting(name);
  if (!value) return {{}, {}, kCannotTell};
  return {*value, assigned_at(source, attribute, *value), {}};
}

InForce workers(const Evidence& evidence, const SourceFacts&) {
  return of_loader(evidence, &LoaderFact::num_workers);
}

InForce batch_size(const Evidence& evidence, const SourceFacts&) {
  const auto samples = std::llround(evidence.steps.samples);
  const auto* loader = loader_of(evidence);
  if (loader == nullptr || !loader->batch_size) {
    if (samples <= 0) return {{}, {}, kCannotTell};
    return {std::to_string(samples), {}, "samples of a step"};
  }
  InForce found{std::to_string(*loader->batch_size), place_of(loader->site), {}};
  if (samples > 0 && static_cast<std::uint64_t>(samples) != *loader->batch_size) {
    found.remark = fmt::format("{} samples of a step", samples);
  }
  return found;
}

InForce pin_memory(const Evidence& evidence, const SourceFacts&) {
  return of_loader(evidence, &LoaderFact::pin_memory);
}
InForce prefetch_factor(const Evidence& evidence, const SourceFacts&) {
  return of_loader(evidence, &LoaderFact::prefetch_factor);
}
InForce persistent_workers(const Evidence& evidence, const SourceFacts&) {
  return of_loader(evidence, &LoaderFact::persistent_workers);
}
InForce drop_last(const Evidence& evidence, const SourceFacts&) {
  return of_loader(evidence, &LoaderFact::drop_last);
}

std::string short_dtype(std::string_view dtype) {
  return std::string(dtype.starts_with("torch.") ? dtype.substr(6) : dtype);
}

/// Autocast, or weights that are of 16 bits themselves.
InForce mixed_precision(const Evidence& evidence, const SourceFacts&) {
  InForce off{"off", {}, {}};
  for (const auto& autocast : evidence.facts.autocasts) {
    if (autocast.enabled) return {short_dtype(autocast.dtype), place_of(autocast.site), {}};
    off.at = place_of(autocast.site);
  }
  const auto* model = evidence.facts.largest_model();
  if (model == nullptr) return {{}, {}, kCannotTell};
  for (const auto& [dtype, count] : model->dtypes) {
    const auto name = short_dtype(dtype);
    if ((name == "bfloat16" || name == "float16") && count * 2 > static_cast<double>(model->parameters)) {
      return {name, {}, "the weights themselves"};
    }
  }
  return off;
}

InForce compiled(const Evidence& evidence, const SourceFacts&) {
  const auto& facts = evidence.facts;
  const auto* model = facts.largest_model();
  const bool ran = (facts.compile_stats && facts.compile_stats->frames > 0) ||
                   (!facts.compile_stats && model != nullptr && model->compiled == true);
  if (ran) return {"true", facts.compiles.empty() ? "" : place_of(facts.compiles.front().site), {}};
  if (facts.compiles.empty()) return {"false", {}, "torch.compile was not called"};
  return {"false", place_of(facts.compiles.front().site), "called, but nothing was compiled"};
}

InForce compile_mode(const Evidence& evidence, const SourceFacts& source) {
  if (compiled(evidence, source).value != "true" || evidence.facts.compiles.empty())
    return {{}, {}, "nothing is compiled"};
  const auto& fact = evidence.facts.compiles.front();
  return {fact.mode.empty() || fact.mode == "none" ? "default" : fact.mode, place_of(fact.site), {}};
}

InForce cudnn_benchmark(const Evidence& evidence, const SourceFacts& source) {
  return of_setting(evidence, source, "cudnn.benchmark", "cudnn.benchmark");
}
InForce cudnn_deterministic(const Evidence& evidence, const SourceFacts& source) {
  return of_setting(evidence, source, "cudnn.deterministic", "cudnn.deterministic");
}
InForce tf32(const Evidence& evidence, const SourceFacts& source) {
  return of_setting(evidence, source, "matmul.allow_tf32", "matmul.allow_tf32");
}
InForce threads(const Evidence& evidence, const SourceFacts& source) {
  return of_setting(evidence, source, "threads", "os.environ[OMP_NUM_THREADS]");
}

InForce channels_last(const Evidence& evidence, const SourceFacts&) {
  const auto* model = evidence.facts.largest_model();
  if (model == nullptr || !model->channels_last) return {{}, {}, kCannotTell};
  return {yes_or_no(*model->channels_last > 0.5), {}, {}};
}

/// Forward passes of one optimiser step: its samples over those of a batch.
InForce accumulation(const Evidence& evidence, const SourceFacts&) {
  const auto* loader = loader_of(evidence);
  if (loader == nullptr || loader->batch_size.value_or(0) < 2 || evidence.steps.samples <= 0)
    return {{}, {}, kCannotTell};
  const auto batches = evidence.steps.samples / static_cast<double>(*loader->batch_size);
  return {std::to_string(std::max(1LL, std::llround(batches))), {}, {}};
}

InForce optimizer(const Evidence& evidence, const SourceFacts&) {
  if (evidence.facts.optimizers.empty()) return {{}, {}, kCannotTell};
  const auto& fact = evidence.facts.optimizers.front();
  return {fact.class_name, place_of(fact.site), {}};
}

InForce fused(const Evidence& evidence, const SourceFacts&) {
  if (evidence.facts.optimizers.empty()) return {{}, {}, kCannotTell};
  const auto& fact = evidence.facts.optimizers.front();
  return {yes_or_no(fact.fused.value_or(false)), place_of(fact.site), {}};
}

InForce learning_rate(const Evidence& evidence, const SourceFacts&) {
  if (evidence.facts.optimizers.empty() || !evidence.facts.optimizers.front().lr) return {{}, {}, kCannotTell};
  const auto& fact = evidence.facts.optimizers.front();
  return {fmt::format("{:g}", *fact.lr), place_of(fact.site), "a schedule may change it"};
}

InForce device(const Evidence& evidence, const SourceFacts&) {
  const auto* model = evidence.facts.largest_model();
  if (model == nullptr || model->devices.empty()) return {{}, {}, kCannotTell};
  return {model->devices.size() == 1 ? model->devices.begin()->first : "several", {}, {}};
}

InForce world_size(const Evidence& evidence, const SourceFacts&) {
  const auto& distributed = evidence.facts.distributed;
  return {std::to_string(distributed ? distributed->world_size : 1), {}, {}};
}

InForce backend(const Evidence& evidence, const SourceFacts&) {
  const auto& distributed = evidence.facts.distributed;
  if (!distributed) return {{}, {}, "there is no process group"};
  return {distributed->backend, {}, {}};
}

InForce unused_parameters(const Evidence& evidence, const SourceFacts&) {
  const auto& distributed = evidence.facts.distributed;
  if (!distributed || !distributed->find_unused_parameters) return {{}, {}, kCannotTell};
  return {yes_or_no(*distributed->find_unused_parameters), {}, {}};
}

InForce unknown(const Evidence&, const SourceFacts&) {
  return {{}, {}, kCannotTell};
}

constexpr KnownSetting kSettings[] = {
    {"loader.num_workers",
     "num_workers workers n_workers nworkers data_loader_workers dataloader_num_workers loader_workers data_workers "
     "num_data_workers dataloader_workers number_of_workers worker_num nw data.workers",
     workers},
    {"batch_size",
     "batch_size batchsize bs train_batch_size batch_size_train per_device_train_batch_size batch_size_per_gpu "
     "samples_per_gpu train_bs micro_batch_size imgs_per_batch mini_batch_size data.batch train.batch",
     batch_size},
    {"amp",
     "amp use_amp mixed_precision fp16 bf16 precision autocast use_fp16 use_bf16 enable_amp amp_dtype half "
     "mixed_precision_training use_mixed_precision",
     mixed_precision},
    {"compile",
     "compile torch_compile compile_model use_compile enable_compile use_torch_compile compiled torchcompile",
     compiled},
    {"compile.mode", "compile_mode torch_compile_mode compile.mode", compile_mode},
    {"cudnn.benchmark", "cudnn_benchmark benchmark_cudnn cudnn.benchmark trainer.benchmark benchmark", cudnn_benchmark},
    {"cudnn.deterministic", "deterministic cudnn_deterministic cudnn.deterministic", cudnn_deterministic},
    {"channels_last", "channels_last use_channels_last memory_format channels_last_format", channels_last},
    {"loader.pin_memory", "pin_memory pin_mem dataloader_pin_memory pinned_memory use_pin_memory", pin_memory},
    {"loader.prefetch_factor", "prefetch_factor dataloader_prefetch_factor prefetch", prefetch_factor},
    {"loader.persistent_workers", "persistent_workers dataloader_persistent_workers use_persistent_workers",
     persistent_workers},
    {"loader.drop_last", "drop_last dataloader_drop_last", drop_last},
    {"tf32", "tf32 allow_tf32 use_tf32 enable_tf32 matmul_tf32", tf32},
    {"accumulation_steps",
     "accumulation_steps gradient_accumulation gradient_accumulation_steps grad_accum grad_accumulation "
     "accumulate_grad_batches accum_iter grad_accum_steps accum_steps accumulate iters_to_accumulate",
     accumulation},
    {"optimizer", "optimizer optim optimizer_name optimizer_type opt optimizer.name optimizer.type", optimizer},
    {"optimizer.fused", "fused fused_optimizer fused_adam use_fused use_fused_adam optimizer.fused", fused},
    {"learning_rate", "learning_rate lr base_lr init_lr initial_lr", learning_rate},
    {"device", "device device_type accelerator use_device training_device", device},
    {"threads", "num_threads omp_num_threads torch_threads intra_op_threads", threads},
    {"world_size", "world_size num_gpus n_gpus ngpus gpus_per_node nproc_per_node", world_size},
    {"distributed.backend", "dist_backend ddp_backend distributed_backend", backend},
    {"find_unused_parameters", "find_unused_parameters ddp_find_unused_parameters", unused_parameters},
    {"epochs", "epochs num_epochs max_epochs n_epochs num_train_epochs total_epochs", unknown},
    {"gradient_checkpointing", "gradient_checkpointing activation_checkpointing use_checkpoint grad_checkpointing",
     unknown},
};

}  // namespace

std::span<const KnownSetting> known_settings() {
  return kSettings;
}

std::string place_of(const model::Site& site) {
  if (!site.known()) return {};
  return fmt::format("{}:{}", base::file_name(site.file), site.line);
}

}  // namespace fullwatt::explain
