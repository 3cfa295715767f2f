#include "fullwatt/engine/grid.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

namespace fullwatt::engine {
namespace {

/// What may stand in a folder's name everywhere.
std::string plain(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return std::string_view("/\\:*?\"<>| ").find(c) != std::string_view::npos; }, '_');
  return text;
}

}  // namespace

std::vector<Trial> trials_of(const Config& config) {
  std::vector<Trial> trials{{}};
  for (const auto& [setting, values] : config.grid) {
    std::vector<Trial> longer;
    for (const auto& trial : trials) {
      for (const auto& value : values) {
        auto next = trial;
        next.name += (next.name.empty() ? "" : ",") + plain(setting + "=" + value);
        next.overrides.push_back(setting + "=" + value);
        longer.push_back(std::move(next));
      }
    }
    trials = std::move(longer);
  }
  for (auto& trial : trials) {
    trial.overrides.push_back("output.folder=" + (std::filesystem::path(config.output.folder) / trial.name).string());
  }
  return trials;
}

std::optional<double> last_epoch_loss(const std::string& folder) {
  std::ifstream file(std::filesystem::path(folder) / "metrics.jsonl");
  std::uint64_t epoch = 0;
  std::uint64_t before = 0;
  double sum = 0;
  double steps = 0;
  for (std::string line; std::getline(file, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    if (!entry.is_object()) continue;  // it was cut off
    const auto number = entry.value("epoch", std::uint64_t{0});
    const auto step = entry.value("step", std::uint64_t{0});
    if (number != epoch) sum = steps = 0;
    epoch = number;
    const auto count = static_cast<double>(step > before ? step - before : 1);
    sum += entry.value("loss", 0.0) * count;
    steps += count;
    before = step;
  }
  return steps > 0 ? std::optional(sum / steps) : std::nullopt;
}

}  // namespace fullwatt::engine
