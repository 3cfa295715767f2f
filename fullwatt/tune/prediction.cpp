#include "fullwatt/tune/prediction.hpp"

#include <algorithm>
#include <span>

#include "catalog/fixes.hpp"

#include "fullwatt/base/text.hpp"

namespace fullwatt::tune {
namespace {

/// How steps differ from turn to turn anyway, as a share of one.
constexpr double kNoise = 0.05;
/// What kernels may lose or gain on a CPU, where their times are not known, as shares of the computing.
constexpr double kUnknownLoss = 0.5;
constexpr double kUnknownGain = 0.8;

/// The most of the time of some kinds of kernels that a fix can take away.
struct Shorter {
  std::string_view kinds;  ///< of model::KernelGroup, divided by blanks
  double share;
};

/// A fix that makes kernels others, or that may find nothing to take away.
struct KernelChange {
  std::string_view fix;
  double loss;       ///< what it may cost, as a share of the step: conversions, other layouts, bad guesses of compilers
  double launching;  ///< the same, as a share of launching: conversions are kernels of their own
  std::span<const Shorter> kernels;
  std::string_view host;       ///< causes on the host that it can take away as a whole, divided by blanks
  bool launches_less = false;  ///< also those launches that kernels hide as long as they are not shorter
};

constexpr Shorter kTf32[] = {{"matmul convolution attention rnn", 0.9}};
constexpr Shorter kHalf[] = {{"matmul convolution attention rnn", 0.93},
                             {"elementwise normalisation softmax reduction embedding copy other", 0.6}};
constexpr Shorter kLayout[] = {{"convolution normalisation elementwise copy other", 0.6}};
constexpr Shorter kChoice[] = {{"convolution", 0.7}};
constexpr Shorter kCompiled[] = {{"elementwise normalisation softmax reduction embedding copy other optimizer", 0.9},
                                 {"matmul convolution attention rnn", 0.3}};
constexpr Shorter kFused[] = {{"optimizer elementwise reduction", 0.9}};
constexpr KernelChange kChanges[] = {
    {"tf32", 0.05, 0, kTf32, ""},
    {"bf16", 0.25, 0.5, kHalf, ""},
    {"fp16", 0.25, 0.5, kHalf, ""},
    {"channels-last", 0.25, 0, kLayout, ""},
    {"cudnn-benchmark", 0.1, 0, kChoice, ""},
    {"compile", 0.25, 0, kCompiled, "python", true},
    {"cuda-graphs", 0.1, 0, {}, "python", true},
    {"backward-inline", 0.05, 0, {}, "", true},
    {"fused-optimizer", 0.05, 0, kFused, "launch-bound optimizer"},
    {"affinity", 0.25, 0, {}, "launch-bound copy-wait data-wait sync-drain gpu-copy-h2d python"},
    {"loader-pinned", 0.05, 0, {}, "copy-wait data-wait"},
    {"non-blocking", 0.05, 0, {}, "copy-wait sync-drain"}};

bool has_word(std::string_view words, std::string_view word) {
  const auto all = base::split(words, ' ');
  return std::ranges::find(all, word) != all.end();
}

double kernels_ms(const model::Explanation& explanation, const KernelChange& change) {
  double sum = 0;
  for (const auto& kernel : explanation.kernels) {
    for (const auto& shorter : change.kernels) {
      if (has_word(shorter.kinds, kernel.kind)) sum += shorter.share * kernel.ms;
    }
  }
  return sum;
}

double causes_ms(const model::Explanation& explanation, std::string_view ids) {
  double sum = 0;
  for (const auto& cause : explanation.causes) {
    if (has_word(ids, cause.id)) sum += cause.charged_ms;
  }
  return sum;
}

model::Prediction interval(const model::Explanation& explanation, const KernelChange& change) {
  const auto step = explanation.step_ms.mean;
  const auto launching = change.launches_less ? launching_ms(explanation) : 0;
  const auto host = causes_ms(explanation, change.host) + launching;
  model::Prediction prediction;
  if (explanation.kernels.empty()) {
    const auto computing = change.host.empty() ? causes_ms(explanation, "forward backward") : host;
    prediction.low_ms = -(kUnknownLoss * computing + kNoise * step);
    prediction.high_ms = kUnknownGain * computing + kNoise * step;
    return prediction;
  }
  prediction.low_ms = -((change.loss + kNoise) * step + change.launching * causes_ms(explanation, "launch-bound"));
  prediction.high_ms = std::min(kernels_ms(explanation, change) + host, step) + kNoise * step;
  return prediction;
}

/// All computing may be waiting of threads for each other, or all of it work that one has to do alone.
model::Prediction fewer_threads(const model::Explanation& explanation) {
  const auto noise = kNoise * explanation.step_ms.mean;
  const auto computing = computing_ms(explanation);
  return {std::nullopt, -(kUnknownLoss * computing + noise), computing + noise};
}

/// The launching of the step that is shown as an example, in a step's own length.
double launching_on_host_ms(const model::Explanation& explanation) {
  double sum = 0;
  for (const auto& bar : explanation.example_step) {
    if (bar.lane == "host" && bar.kind == "launch-bound") sum += bar.length_ms;
  }
  return explanation.example_step_ms > 0 ? sum * explanation.step_ms.mean / explanation.example_step_ms : 0;
}

/// What the findings that a fix takes away cost a step together. They may overlap, so that it is never more than the
/// step has.
std::optional<double> promised_ms(const model::Explanation& explanation, std::string_view fix) {
  const auto* entry = catalog::find_fix(fix);
  std::optional<double> sum;
  for (const auto& finding : explanation.findings) {
    if (std::ranges::find(entry->mends, finding.id) == entry->mends.end()) continue;
    sum = sum.value_or(0) + finding.best_gain_ms();
  }
  if (sum) sum = std::min(*sum, explanation.step_ms.mean);
  return sum;
}

/// With samples in memory nothing waits for a batch any more but for its padding, nor for its way to the GPU, where
/// there is room for them or batches are sent ahead. A step without a loader tells, too, what its workers took of the
/// CPUs.
std::optional<double> waiting_ms(const model::Explanation& explanation) {
  const auto waiting = std::ranges::find(explanation.causes, "data-wait", &model::Cause::id);
  if (waiting == explanation.causes.end()) return std::nullopt;
  auto gone = std::min(waiting->charged_ms, waiting->gain_alone_ms.value_or(waiting->charged_ms));
  if (explanation.ceiling_ms) gone = std::max(0.0, explanation.step_ms.mean - *explanation.ceiling_ms);
  const auto all = std::min(gone + causes_ms(explanation, "copy-wait gpu-copy-h2d"), explanation.step_ms.mean);
  return std::max(0.0, all - explanation.padding_ms.value_or(0));
}

}  // namespace

double launching_ms(const model::Explanation& explanation) {
  double shorter = 0;
  for (const auto& change : kChanges) shorter = std::max(shorter, kernels_ms(explanation, change));
  const auto busy = explanation.gpu_busy_ms.value_or(explanation.step_ms.mean) - shorter;
  return std::max(causes_ms(explanation, "launch-bound"), launching_on_host_ms(explanation) - busy);
}

double computing_ms(const model::Explanation& explanation) {
  return causes_ms(explanation, "forward backward optimizer");
}

model::Prediction predict(const model::Explanation& explanation, std::string_view fix) {
  const auto* change = std::ranges::find(kChanges, fix, &KernelChange::fix);
  auto prediction = change != std::end(kChanges) ? interval(explanation, *change) : model::Prediction{};
  prediction.ms = promised_ms(explanation, fix);
  if (fix == "threads" && !prediction.ms) return fewer_threads(explanation);
  if (fix == "sample-cache" && prediction.ms)
    prediction.ms = waiting_ms(explanation).or_else([&] { return prediction.ms; });
  return prediction;
}

}  // namespace fullwatt::tune
