#include "fullwatt/explain/facts.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace fullwatt::explain {

std::optional<std::string> ProcessFacts::setting(const std::string& name) const {
  for (const auto* when : {"end", "window", "first-step"}) {
    const auto values = settings.find(when);
    if (values == settings.end()) continue;
    const auto value = values->second.find(name);
    if (value != values->second.end()) return value->second;
  }
  return std::nullopt;
}

std::optional<bool> ProcessFacts::flag(const std::string& name) const {
  const auto value = setting(name);
  if (value == "true") return true;
  if (value == "false") return false;
  return std::nullopt;
}

std::optional<std::string> ProcessFacts::variable(const std::string& name) const {
  const auto value = environment.find(name);
  return value == environment.end() || value->second == "none" ? std::nullopt : std::optional(value->second);
}

bool ProcessFacts::has_in_force(std::string_view fix) const {
  const auto is_it = [&](const FixFact& fact) { return fact.id == fix && fact.state == "in-force"; };
  return std::ranges::any_of(fixes, is_it);
}

bool ProcessFacts::loads_onto_gpu() const {
  return batch_device.starts_with("cuda");
}

const LoaderFact* ProcessFacts::training_loader() const {
  std::map<int, std::uint64_t> batches;
  for (const auto& epoch : epochs) batches[epoch.loader] += epoch.batches.value_or(1);
  std::map<int, std::uint64_t> given_up;
  for (const auto& seen : iterators) given_up[seen.loader] = static_cast<std::uint64_t>(seen.begun - seen.ended);
  for (const auto& [loader, count] : given_up) batches[loader] += count;
  const auto iterated = [&](const LoaderFact& fact) {
    return std::pair(fact.trains, batches.contains(fact.id) ? batches.at(fact.id) : 0);
  };
  const auto most = std::ranges::max_element(loaders, {}, iterated);
  return most == loaders.end() ? nullptr : &*most;
}

const ModelFact* ProcessFacts::largest_model() const {
  const auto at = std::ranges::max_element(models, {}, &ModelFact::parameters);
  return at == models.end() ? nullptr : &*at;
}

bool ProcessFacts::on_gpu() const {
  const auto named_cuda = [](const auto& device) { return device.first.starts_with("cuda") && device.second > 0; };
  const auto model_on_gpu = [&](const ModelFact& fact) { return std::ranges::any_of(fact.devices, named_cuda); };
  if (std::ranges::any_of(models, model_on_gpu)) return true;
  if (device_check && std::ranges::any_of(device_check->parameters, named_cuda)) return true;
  return input && input->device.starts_with("cuda");
}

}  // namespace fullwatt::explain
