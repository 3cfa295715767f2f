// How the weights are updated.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/explain/rules/kernel_facts.hpp"
#include "fullwatt/explain/rules/rule.hpp"
#include "fullwatt/explain/settings_in_force.hpp"

namespace fullwatt::explain {
namespace {

/// What the optimiser's step costs: the GPU waiting in that phase, and its own kernels.
struct Update {
  const OptimizerFact* fact = nullptr;
  double idle_ms = 0;
  double kernel_ms = 0;
  double launches = 0;
};

bool by_optimizer(const Charge& charge) {
  return charge.phase == HostPhase::optimizer &&
         (charge.gpu_busy || charge.cause == cause::kLaunchBound || charge.cause == cause::kPython);
}

std::optional<Update> update_of(const Case& examined) {
  if (examined.facts().optimizers.empty() || !examined.evidence.gpu_time.known()) return std::nullopt;
  Update update;
  update.fact = &examined.facts().optimizers.front();
  for (const auto& charge : examined.evidence.attribution.charges) {
    if (!by_optimizer(charge)) continue;
    (charge.gpu_busy ? update.kernel_ms : update.idle_ms) += charge.ms;
  }
  for (const auto& use : examined.evidence.attribution.calls) {
    if (use.phase == HostPhase::optimizer && use.category == "launch") update.launches += use.count;
  }
  return update;
}

Matches priced(const Case& examined, const Update& update, std::string_view id) {
  const double gone = 1 - keeps(id);
  Change change;
  for (const auto cause : {cause::kLaunchBound, cause::kPython}) {
    change.removals.push_back({std::string(cause), std::nullopt, HostPhase::optimizer, gone});
  }
  change += scaled_where(examined, of_kind("optimizer"), 1 - gone / 2);
  Match match;
  match.at(update.fact->site).costs(update.idle_ms + update.kernel_ms, examined.gain(change), examined.step_ms());
  match.fact("name", update.fact->class_name).fact("kernels", number_text(update.launches));
  match.fact("count", update.fact->tensors ? std::to_string(*update.fact->tensors) : "?");
  match.saw("launches in the optimiser's step", number_text(update.launches), "CUPTI");
  return {match.saw("fused, foreach",
                    fmt::format("{}, {}", update.fact->fused == true ? "true" : "false",
                                update.fact->foreach == false ? "false" : "default"),
                    place_of(update.fact->site))};
}

bool has_fused(std::string_view name) {
  const auto known = {"Adam", "AdamW", "SGD", "Adagrad"};
  return std::ranges::any_of(known, [&](std::string_view one) { return one == name; });
}

Matches unfused(const Case& examined) {
  const auto update = update_of(examined);
  if (!update || update->fact->fused == true || update->fact->foreach == false || !has_fused(update->fact->class_name))
    return {};
  return priced(examined, *update, "optimizer-unfused");
}

/// Told to go one by one, or an optimiser of somebody's own that does: more launches than parameters.
Matches single_tensor(const Case& examined) {
  const auto update = update_of(examined);
  if (!update || update->fact->fused == true) return {};
  const auto tensors = static_cast<double>(update->fact->tensors.value_or(0));
  const bool own =
      !update->fact->of_torch && !has_fused(update->fact->class_name) && tensors >= 8 && update->launches > 2 * tensors;
  if (update->fact->foreach != false && !own) return {};
  return priced(examined, *update, "optimizer-single-tensor");
}

Matches accumulation(const Case& examined) {
  constexpr double kFewSamples = 100;
  const auto update = update_of(examined);
  const auto& samples = examined.evidence.steps.samples;
  if (!update || samples <= 0 || samples > kFewSamples) return {};
  const double charged = update->idle_ms + update->kernel_ms;
  if (examined.share(charged) < 0.15) return {};
  Match match;
  match.costs(charged, charged * (1 - keeps("accumulation-off")), examined.step_ms());
  match.fact("samples", number_text(samples));
  return {match.saw("optimiser", ms_text(charged) + " ms of a step", place_of(update->fact->site))};
}

constexpr std::array kRules{
    Rule{"optimizer-unfused", unfused},
    Rule{"optimizer-single-tensor", single_tensor},
    Rule{"accumulation-off", accumulation},
};

}  // namespace

std::span<const Rule> optimizer_rules() {
  return kRules;
}

}  // namespace fullwatt::explain
