#include "fullwatt/tune/cooling.hpp"

#include <thread>

#include <fmt/format.h>

#include "fullwatt/model/nvml.hpp"

namespace fullwatt::tune {
namespace {

constexpr int kHotC = 85;
constexpr int kCoolC = 80;

bool is_at(const model::GpuSample& sample, int celsius) {
  constexpr auto kByHeat = model::clock_event::kSwThermal | model::clock_event::kHwThermal;
  const bool is_slowed = sample.throttle_reasons && (*sample.throttle_reasons & kByHeat) != 0;
  return is_slowed || (sample.temperature_c && *sample.temperature_c >= celsius);
}

}  // namespace

bool is_hot(const model::GpuSample& sample) {
  return is_at(sample, kHotC);
}

void wait_until_cool(const Cooling& cooling) {
  auto sample = cooling.newest();
  if (!sample || !is_hot(*sample)) return;
  cooling.say(sample->temperature_c
                  ? fmt::format("the card is at {} °C: waits until it is cooler", *sample->temperature_c)
                  : "heat slows the card down: waits until it is cooler");
  for (int pauses = 0; pauses < cooling.most_pauses && !cooling.is_over(); ++pauses) {
    std::this_thread::sleep_for(cooling.pause);
    sample = cooling.newest();
    if (!sample || !is_at(*sample, kCoolC)) return;
  }
}

}  // namespace fullwatt::tune
