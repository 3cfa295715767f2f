#include "fullwatt/tune/advice.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace fullwatt::tune {
namespace {

constexpr double kAtWork = 0.7;     ///< a card that is busy so much of the time is not idle
constexpr double kRoomFor = 0.9;    ///< of the memory, for several trainings or a larger one
constexpr double kRoomy = 0.5;      ///< memory used less than this has room for something larger
constexpr double kSmallWork = 0.3;  ///< of the peak; less means that kernels do not fill the card
constexpr double kMostAtOnce = 8;

struct Use {
  double used = 0;
  double limit = 0;

  double share() const { return used / limit; }
};

std::optional<Use> use_of(const model::Explanation& explanation, std::string_view id) {
  const auto found = std::ranges::find(explanation.resources, id, &model::ResourceUse::id);
  if (found == explanation.resources.end() || !found->used || !found->limit) return std::nullopt;
  if (*found->used <= 0 || *found->limit <= 0) return std::nullopt;
  return Use{*found->used, *found->limit};
}

std::string percent(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

}  // namespace

std::vector<model::Advice> advice(const model::Explanation& explanation) {
  std::vector<model::Advice> all;
  const auto busy = use_of(explanation, "gpu-busy");
  const auto memory = use_of(explanation, "memory");
  const auto compute = use_of(explanation, "compute");
  const auto cpu = use_of(explanation, "cpu");
  if (!busy) return all;
  if (busy->share() < kAtWork && memory) {
    auto count = std::min(1 / busy->share(), kRoomFor / memory->share());
    if (cpu) count = std::min(count, 1 / cpu->share());
    count = std::floor(std::min(count, kMostAtOnce));
    if (count >= 2) {
      all.push_back({"several",
                     {{"share", percent(busy->share())},
                      {"value", fmt::format("{:.1f}", memory->used)},
                      {"limit", fmt::format("{:.0f}", memory->limit)},
                      {"count", fmt::format("{:.0f}", count)}}});
    }
  }
  if (busy->share() < kAtWork && memory && memory->share() < kRoomy) {
    all.push_back(
        {"larger",
         {{"share", percent(memory->share())}, {"factor", fmt::format("{:.1f}×", kRoomFor / memory->share())}}});
  }
  if (busy->share() >= kAtWork && compute && compute->share() < kSmallWork)
    all.push_back({"small-work", {{"share", percent(compute->share())}}});
  return all;
}

}  // namespace fullwatt::tune
