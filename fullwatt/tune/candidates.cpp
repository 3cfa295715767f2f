#include "fullwatt/tune/candidates.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "catalog/fixes.hpp"
#include "catalog/starting_points.hpp"

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/explain/one_thread.hpp"
#include "fullwatt/tune/prediction.hpp"

namespace fullwatt::tune {
namespace {

using Settings = std::map<std::string, std::string>;
using Proposal = std::optional<Candidate>;
constexpr std::uint64_t kGigabyte = 1ULL << 30;
constexpr int kMostWorkers = 16;

Proposal propose(std::string why, Settings settings = {}) {
  return Candidate{{{}, std::move(settings), std::nullopt}, std::move(why), {}};
}

bool on_gpu(const Situation& now) {
  return now.facts.on_gpu();
}

bool has_capability(const Situation& now, const char* least) {
  return on_gpu(now) && std::ranges::any_of(now.facts.gpus, [&](const auto& gpu) {
           return base::Version(gpu.capability) >= base::Version(least);
         });
}

/// Tensor cores that know TF32 and bfloat16.
bool has_ampere(const Situation& now) {
  return has_capability(now, "8.0");
}

bool has_layer(const Situation& now, std::string_view name) {
  const auto* model = now.facts.largest_model();
  return model != nullptr &&
         std::ranges::any_of(model->modules, [&](const auto& entry) { return entry.first.starts_with(name); });
}

/// The first finding of the run that a fix takes away.
const model::Finding* mended_by(const Situation& now, std::string_view fix) {
  const auto* entry = catalog::find_fix(fix);
  const auto found = std::ranges::find_if(now.explanation.findings, [&](const auto& finding) {
    return std::ranges::find(entry->mends, finding.id) != entry->mends.end();
  });
  return found != now.explanation.findings.end() ? &*found : nullptr;
}

/// A fix that is worth trying because of a finding.
Proposal for_finding(const Situation& now, std::string_view fix, Settings settings = {}) {
  const auto* finding = mended_by(now, fix);
  if (finding == nullptr) return std::nullopt;
  return propose("mends " + finding->id, std::move(settings));
}

Proposal tf32(const Situation& now) {
  if (!has_ampere(now)) return std::nullopt;
  if (now.facts.setting("matmul.precision") == "highest") return propose("float32 products run without tensor cores");
  return for_finding(now, "tf32");
}

bool runs_in_float32(const Situation& now) {
  const auto* model = now.facts.largest_model();
  return model != nullptr && model->dtypes.contains("float32") &&
         std::ranges::none_of(now.facts.autocasts, &explain::AutocastFact::enabled);
}

Proposal bf16(const Situation& now) {
  const bool is_known = on_gpu(now) ? has_ampere(now) : now.cpu_knows_bfloat16;
  if (!is_known || !runs_in_float32(now)) return std::nullopt;
  return propose("the model runs in float32");
}

/// For the tensor cores of Volta and Turing.
Proposal fp16(const Situation& now) {
  if (has_ampere(now) || !has_capability(now, "7.0") || !runs_in_float32(now)) return std::nullopt;
  return propose("the model runs in float32, and this card knows no bfloat16");
}

Proposal cudnn_benchmark(const Situation& now) {
  if (!on_gpu(now) || !has_layer(now, "Conv") || now.facts.flag("cudnn.benchmark") == true) return std::nullopt;
  return propose("convolutions run by cuDNN's guess");
}

Proposal channels_last(const Situation& now) {
  const auto* model = now.facts.largest_model();
  if (!has_layer(now, "Conv2d") || model->channels_last.value_or(0) > 0.5) return std::nullopt;
  return propose("convolutions over images in the order NCHW");
}

/// On a CPU compiling takes longer than most trials.
Proposal compile(const Situation& now) {
  const auto* model = now.facts.largest_model();
  if (!on_gpu(now) || model == nullptr || model->compiled == true) return std::nullopt;
  return propose("the model is not compiled");
}

/// Where the GPU waits for launches, or will when its kernels are shorter: how much of that goes away shows only when
/// it is tried.
Proposal faster_launches(const Situation& now) {
  constexpr double kLeastShare = 0.02;
  const bool waits = on_gpu(now) && launching_ms(now.explanation) > kLeastShare * now.explanation.step_ms.mean;
  return waits ? propose("the GPU waits for launches") : std::nullopt;
}

Proposal fused_optimizer(const Situation& now) {
  constexpr std::array<std::string_view, 4> kFused{"Adam", "AdamW", "SGD", "Adagrad"};
  const auto can = [&](const auto& optimizer) {
    return optimizer.fused != true && std::ranges::find(kFused, optimizer.class_name) != kFused.end();
  };
  const auto found = std::ranges::find_if(now.facts.optimizers, can);
  if (found == now.facts.optimizers.end()) return std::nullopt;
  return propose(found->class_name + " is not fused");
}

Proposal gradients_to_none(const Situation& now) {
  return for_finding(now, "gradients-to-none");
}

Proposal anomaly_off(const Situation& now) {
  return for_finding(now, "anomaly-off");
}

Proposal gc_freeze(const Situation& now) {
  return for_finding(now, "gc-freeze");
}

/// Threads that have little to do, or too few CPUs, spend their time on waiting for each other.
Proposal fewer_threads(const Situation& now) {
  const auto threads = base::number<int>(now.facts.setting("threads").value_or(""));
  if (on_gpu(now) || !threads) return std::nullopt;
  const auto propose_count = [&](int count, std::string why) -> Proposal {
    if (count >= *threads) return std::nullopt;
    return propose(std::move(why), {{"count", std::to_string(count)}});
  };
  const auto alone = explain::one_thread(now.facts);
  if (alone && alone->working_ms < computing_ms(now.explanation))
    return propose_count(1, "a single thread may be faster: operations are small");
  const auto* loader = now.facts.training_loader();
  const auto workers = loader != nullptr ? loader->num_workers.value_or(0) : 0;
  return propose_count(std::max(1, now.cpus - workers), "the loader's workers need CPUs, too");
}

Proposal threads(const Situation& now) {
  const auto* finding = mended_by(now, "threads");
  if (finding == nullptr) return fewer_threads(now);
  const auto wanted = finding->facts.find("expected");
  const auto count = wanted != finding->facts.end() ? wanted->second : std::to_string(now.cpus);
  return for_finding(now, "threads", {{"count", count}});
}

Proposal affinity(const Situation& now) {
  if (!on_gpu(now) || now.gpu_cpus.empty()) return std::nullopt;
  return propose("the program may run on CPUs of another socket than the GPU's", {{"cpus", now.gpu_cpus}});
}

Proposal allocator(const Situation& now) {
  return for_finding(now, "allocator", {{"settings", "expandable_segments:True"}});
}

/// The memory of the smallest card.
std::uint64_t card_bytes(const Situation& now) {
  std::uint64_t least = 0;
  for (const auto& gpu : now.facts.gpus) {
    const auto bytes = gpu.memory_bytes.value_or(0);
    if (least == 0 || bytes < least) least = bytes;
  }
  return least;
}

/// Where settings begin on this card with this data.
catalog::StartingPoint starting_point(const Situation& now) {
  const auto* loader = now.facts.training_loader();
  return catalog::starting_point(static_cast<double>(card_bytes(now)) / static_cast<double>(kGigabyte),
                                 loader != nullptr ? loader->dataset_length.value_or(0) : 0);
}

/// As many as the loader was seen to need, else as a card like this usually does.
int workers(const Situation& now) {
  for (const auto* id : {"loader-workers-too-few", "loader-workers-zero"}) {
    const auto* finding = now.explanation.find(id);
    if (finding == nullptr || !finding->facts.contains("expected")) continue;
    if (const auto wanted = base::number<int>(finding->facts.at("expected")))
      return std::clamp(*wanted, 1, kMostWorkers);
  }
  return std::min(now.cpus, starting_point(now).workers);
}

Proposal sample_cache(const Situation& now) {
  const auto* loader = now.facts.training_loader();
  const auto gigabytes = now.memory_free_bytes / 2 / kGigabyte;
  if (loader == nullptr || loader->iterable || !loader->dataset_length || gigabytes == 0) return std::nullopt;
  Settings settings{{"gigabytes", std::to_string(std::min<std::uint64_t>(gigabytes, 4096))},
                    {"workers", std::to_string(std::min(now.cpus, kMostWorkers))}};
  // Where the CPUs do the training, a thread that goes ahead would be in its way.
  if (on_gpu(now)) {
    settings["ahead"] = "true";
    // The agent looks again at what is free.
    const auto part = static_cast<std::uint64_t>(starting_point(now).on_gpu_percent);
    settings["gpu_gigabytes"] = std::to_string(card_bytes(now) * part / 100 / kGigabyte);
  }
  return for_finding(now, "sample-cache", std::move(settings));
}

bool are_batches_pageable(const Situation& now) {
  const auto* loader = now.facts.training_loader();
  return on_gpu(now) && loader != nullptr && loader->pin_memory != true && !now.facts.loads_onto_gpu();
}

Proposal loader_workers(const Situation& now) {
  const auto* loader = now.facts.training_loader();
  const auto count = workers(now);
  if (loader == nullptr || loader->iterable || loader->num_workers.value_or(0) >= count) return std::nullopt;
  Settings settings{{"count", std::to_string(count)}};
  // Workers that the program does not have yet are not to be started in every epoch.
  if (loader->num_workers.value_or(0) == 0 && !loader->follows_epochs) settings["persistent"] = "true";
  if (are_batches_pageable(now)) settings["pinned"] = "true";
  return for_finding(now, "loader-workers", std::move(settings));
}

Proposal loader_prefetch(const Situation& now) {
  return for_finding(now, "loader-prefetch", {{"factor", std::to_string(starting_point(now).prefetch)}});
}

Proposal loader_persistent(const Situation& now) {
  return for_finding(now, "loader-persistent");
}

Proposal loader_pinned(const Situation& now) {
  if (!are_batches_pageable(now)) return std::nullopt;
  return propose("batches are not in pinned memory");
}

Proposal non_blocking(const Situation& now) {
  if (!on_gpu(now)) return std::nullopt;
  return propose("copies to the GPU may wait");
}

struct Rule {
  std::string_view fix;
  Proposal (*propose)(const Situation&);
};
constexpr Rule kRules[] = {{"tf32", tf32},
                           {"bf16", bf16},
                           {"fp16", fp16},
                           {"cudnn-benchmark", cudnn_benchmark},
                           {"channels-last", channels_last},
                           {"compile", compile},
                           {"cuda-graphs", faster_launches},
                           {"backward-inline", faster_launches},
                           {"fused-optimizer", fused_optimizer},
                           {"gradients-to-none", gradients_to_none},
                           {"anomaly-off", anomaly_off},
                           {"gc-freeze", gc_freeze},
                           {"threads", threads},
                           {"affinity", affinity},
                           {"allocator", allocator},
                           {"sample-cache", sample_cache},
                           {"loader-workers", loader_workers},
                           {"loader-prefetch", loader_prefetch},
                           {"loader-persistent", loader_persistent},
                           {"loader-pinned", loader_pinned},
                           {"non-blocking", non_blocking}};

}  // namespace

std::vector<Candidate> candidates(const Situation& situation) {
  std::vector<Candidate> found;
  for (const auto& rule : kRules) {
    auto proposal = rule.propose(situation);
    if (!proposal) continue;
    proposal->fix.id = rule.fix;
    proposal->predicted = predict(situation.explanation, rule.fix);
    found.push_back(*std::move(proposal));
  }
  std::ranges::stable_sort(found, {}, [](const auto& one) { return catalog::find_fix(one.fix.id)->order; });
  return found;
}

}  // namespace fullwatt::tune
