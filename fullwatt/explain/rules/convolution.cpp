// cuDNN's settings, and the layout of what it works on.

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/explain/rules/kernel_facts.hpp"
#include "fullwatt/explain/rules/lines.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

bool changes_layout(const KernelUse& kernel) {
  const auto name = base::lower(kernel.name);
  return base::contains(name, "nchwtonhwc") || base::contains(name, "nhwctonchw") ||
         base::contains(name, "nchw_to_nhwc") || base::contains(name, "nhwc_to_nchw");
}

constexpr std::string_view kConvolution = "gpu-convolution";

bool convolves(const KernelUse& kernel) {
  return kernel.kind.kind == "convolution";
}

Matches layout(const Case& examined) {
  const auto kernels = kernels_where(examined, changes_layout);
  if (kernels.ms <= 0) return {};
  Match match;
  match.near({call_of_model(examined), main_line(examined, kConvolution)});
  match.costs(kernels.ms, examined.gain(scaled_where(examined, changes_layout, keeps("conv-layout-nchw"))),
              examined.step_ms());
  match.fact("count", number_text(kernels.count));
  match.saw("kernels that change the layout",
            fmt::format("{} a step, {} ms", number_text(kernels.count), ms_text(kernels.ms)), "CUPTI");
  const auto* model = examined.facts().largest_model();
  if (model != nullptr && model->channels_last)
    match.saw("weights in channels_last", percent(*model->channels_last) + " %", model->class_name);
  return {match};
}

std::string shape_text(const InputFact& input) {
  std::vector<std::string> sizes;
  for (const auto size : input.shape) sizes.push_back(std::to_string(size));
  return base::join(sizes, "×");
}

/// Nearly every step has as many samples, but for the last of an epoch: the shape is taken to be fixed.
bool same_size(const Case& examined) {
  const auto& steps = examined.evidence.steps;
  std::map<std::uint64_t, std::size_t> sizes;
  for (const auto index : steps.plain) ++sizes[steps.all[index].samples];
  const auto most = std::ranges::max_element(sizes, {}, [](const auto& item) { return item.second; });
  return steps.known() && most->second * 10 >= steps.plain.size() * 9;
}

Matches benchmark_off(const Case& examined) {
  const auto& facts = examined.facts();
  if (facts.flag("cudnn.benchmark") != false || facts.flag("cudnn.deterministic") == true ||
      facts.flag("cudnn.enabled") == false)
    return {};
  if (!facts.input || !same_size(examined)) return {};
  const auto kernels = kernels_where(examined, convolves);
  if (kernels.ms <= 0) return {};
  Match match;
  match.near({set_or_spent(examined, {"cudnn.benchmark"}, kConvolution)});
  match.costs(kernels.ms, examined.gain(scaled_where(examined, convolves, keeps("cudnn-benchmark-off"))),
              examined.step_ms());
  match.fact("value", shape_text(*facts.input));
  return {match.saw("cudnn.benchmark", "false", "settings in force")
              .saw("convolutions", ms_text(kernels.ms) + " ms of a step", "CUPTI")};
}

/// A search for algorithms makes a step many times as long. Waiting for data does too, hence without it.
Matches benchmark_thrashes(const Case& examined) {
  constexpr double kLong = 3;
  if (examined.facts().flag("cudnn.benchmark") != true || kernels_where(examined, convolves).ms <= 0) return {};
  std::vector<double> lengths;
  for (const auto& step : examined.evidence.steps.all) {
    if (step.plain()) lengths.push_back(step.ms() - step.phase_ms[static_cast<std::size_t>(HostPhase::data)]);
  }
  if (lengths.size() < 20) return {};
  const auto spread = spread_of(lengths);
  double more = 0;
  double count = 0;
  for (const double length : lengths) {
    if (length < kLong * spread.median) continue;
    more += length - spread.median;
    ++count;
  }
  const auto steps = static_cast<double>(lengths.size());
  if (count / steps < 0.03 || same_size(examined)) return {};
  Match match;
  match.near({set_or_spent(examined, {"cudnn.benchmark"}, kConvolution)});
  match.costs(more / steps, more / steps, examined.step_ms()).fact("value", percent(count / steps));
  return {match.saw("cudnn.benchmark", "true", "settings in force")
              .saw("long steps", fmt::format("{:.0f} of {:.0f}", count, steps), "steps")};
}

Matches off(const Case& examined) {
  if (examined.facts().flag("cudnn.enabled") != false) return {};
  const KernelTest concerned = [](const KernelUse& kernel) { return convolves(kernel) || kernel.kind.kind == "rnn"; };
  const auto kernels = kernels_where(examined, concerned);
  if (kernels.ms <= 0) return {};
  Match match;
  match.near({set_or_spent(examined, {"cudnn.enabled"}, kConvolution)});
  auto change = scaled_where(examined, concerned, keeps("cudnn-off"));
  change += Change::without(cause::kLaunchBound);  // PyTorch's own convolutions are many kernels, cuDNN's are one
  change.removals.back().share = 1 - keeps("cudnn-off");
  match.costs(kernels.ms, examined.gain(change), examined.step_ms());
  return {match.saw("cudnn.enabled", "false", "settings in force")};
}

/// The same on a CPU, where no kernels are seen: convolutions and recurrent layers are most of such a step.
Matches off_on_cpu(const Case& examined) {
  const auto* model = examined.facts().largest_model();
  if (examined.facts().on_gpu() || model == nullptr || examined.facts().flag("mkldnn.enabled") != false) return {};
  const bool concerned = std::ranges::any_of(model->modules, [](const auto& layer) {
    return layer.first.starts_with("Conv") || layer.first == "LSTM" || layer.first == "GRU" || layer.first == "RNN";
  });
  if (!concerned) return {};
  const double computing = examined.charged(cause::kForward) + examined.charged(cause::kBackward);
  Match match;
  match.near({set_at(examined.source, {"mkldnn.enabled", "mkldnn.flags"})});
  match.costs(computing, computing * (1 - keeps("onednn-off")), examined.step_ms());
  return {match.saw("mkldnn.enabled", "false", "settings in force")};
}

/// Which kernels the switches concern: convolutions by cuDNN's, also scatters and index operations by PyTorch's.
Matches deterministic(const Case& examined) {
  const bool all = examined.facts().flag("deterministic_algorithms") == true;
  const bool cudnn = examined.facts().flag("cudnn.deterministic") == true;
  if (!all && !cudnn) return {};
  const KernelTest concerned = [all](const KernelUse& kernel) {
    return convolves(kernel) || (all && kernel.kind.kind == "embedding");
  };
  const auto kernels = kernels_where(examined, concerned);
  if (kernels.ms <= 0) return {};
  // Sums at scattered places are sorted first, to be added up in one order; without the switch they are added as they
  // come.
  constexpr double kLeftOfSortedSums = 0.5;
  const KernelTest sums_sorted = [all](const KernelUse& kernel) {
    return all && base::contains(kernel.name, "indexing_backward");
  };
  auto change = scaled_where(examined, sums_sorted, kLeftOfSortedSums);
  change += scaled_where(
      examined, [&](const KernelUse& kernel) { return concerned(kernel) && !sums_sorted(kernel); },
      keeps("deterministic-left-on"));
  Match match;
  match.near({set_or_spent(examined, {"use_deterministic_algorithms", "cudnn.deterministic"}, kConvolution)});
  match.costs(kernels.ms, examined.gain(change), examined.step_ms());
  if (all) match.saw("torch.use_deterministic_algorithms", "true", "settings in force");
  if (cudnn) match.saw("cudnn.deterministic", "true", "settings in force");
  return {match};
}

constexpr std::array kRules{
    Rule{"conv-layout-nchw", layout},
    Rule{"cudnn-benchmark-off", benchmark_off},
    Rule{"cudnn-benchmark-thrashes", benchmark_thrashes},
    Rule{"cudnn-off", off},
    Rule{"onednn-off", off_on_cpu},
    Rule{"deterministic-left-on", deterministic},
};

}  // namespace

std::span<const Rule> convolution_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
