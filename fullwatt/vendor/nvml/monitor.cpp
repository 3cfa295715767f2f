#include "fullwatt/vendor/nvml/monitor.hpp"

#include <algorithm>
#include <array>
#include <span>

#include <fmt/format.h>

#include "fullwatt/base/library.hpp"
#include "fullwatt/vendor/nvml/functions.hpp"
#include "fullwatt/vendor/nvml/memory.hpp"
#include "fullwatt/vendor/nvml/processes.hpp"

namespace fullwatt::vendor::nvml {
namespace {

constexpr unsigned kTransmit = 0;
constexpr unsigned kReceive = 1;

}  // namespace

struct Monitor::Library {
  explicit Library(base::Library loaded) : library(std::move(loaded)), nvml(library) {}

  base::Library library;
  Functions nvml;
  std::vector<abi::Device> handles;
  std::vector<model::RunGpu> gpus;
};

Monitor::Monitor(std::unique_ptr<Library> library) : library_(std::move(library)) {}

Monitor::~Monitor() {
  [[maybe_unused]] const auto closed = library_->nvml.call({"nvmlShutdown"});
}

base::Result<std::unique_ptr<Monitor>> Monitor::open(const std::string& library_name) {
  auto loaded = base::Library::load(library_name);
  if (!loaded) return base::fail(base::Error::Kind::not_found, "there is no NVIDIA driver here (" + library_name + ")");
  auto own = std::make_unique<Library>(std::move(*loaded));
  if (const auto started = own->nvml.call({"nvmlInit_v2", "nvmlInit"}); !started) {
    return base::fail(base::Error::Kind::unavailable,
                      fmt::format("NVML does not start (code {})", started.error().code), "Run: fullwatt doctor");
  }
  const unsigned count = own->nvml.ask<unsigned>({"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"}).value_or(0);
  for (unsigned index = 0; index < count; ++index) {
    const auto handle =
        own->nvml.ask<abi::Device>({"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"}, index);
    if (!handle) continue;
    model::RunGpu gpu;
    gpu.nvml_index = static_cast<int>(index);
    gpu.uuid = own->nvml.ask_text({"nvmlDeviceGetUUID"}, *handle).value_or("");
    gpu.name = own->nvml.ask_text({"nvmlDeviceGetName"}, *handle).value_or("");
    const auto pci = own->nvml.ask<abi::PciInfo>({"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"}, *handle);
    if (pci) gpu.bdf = fmt::format("{:04x}:{:02x}:{:02x}.0", pci->domain, pci->bus, pci->device);
    own->handles.push_back(*handle);
    own->gpus.push_back(std::move(gpu));
  }
  if (own->gpus.empty()) return base::fail(base::Error::Kind::unavailable, "NVML lists no GPU", "Run: fullwatt doctor");
  return std::unique_ptr<Monitor>(new Monitor(std::move(own)));
}

const std::vector<model::RunGpu>& Monitor::gpus() const {
  return library_->gpus;
}

model::GpuSample Monitor::sample(std::size_t gpu) const {
  const auto& nvml = library_->nvml;
  const auto handle = library_->handles[gpu];
  model::GpuSample sample;
  sample.gpu = static_cast<int>(gpu);
  sample.power_w = derive<double>(nvml.ask<unsigned>({"nvmlDeviceGetPowerUsage"}, handle),
                                  [](unsigned milliwatts) { return milliwatts / 1000.0; });
  const auto use = nvml.ask<abi::Utilization>({"nvmlDeviceGetUtilizationRates"}, handle);
  sample.utilization_percent = number(derive<unsigned>(use, &abi::Utilization::gpu));
  sample.memory_utilization_percent = number(derive<unsigned>(use, &abi::Utilization::memory));
  sample.memory_used_bytes = read_memory(nvml, handle).used_bytes;
  sample.sm_clock_mhz = number(nvml.ask<unsigned>({"nvmlDeviceGetClockInfo"}, handle, abi::kClockSm));
  sample.memory_clock_mhz = number(nvml.ask<unsigned>({"nvmlDeviceGetClockInfo"}, handle, abi::kClockMemory));
  sample.temperature_c = number(nvml.ask<unsigned>({"nvmlDeviceGetTemperature"}, handle, abi::kTemperatureGpu));
  sample.throttle_reasons = derive<std::uint64_t>(
      nvml.ask<unsigned long long>(
          {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"}, handle),
      [](unsigned long long reasons) { return std::uint64_t{reasons}; });
  return sample;
}

std::vector<Monitor::Power> Monitor::power_since(std::size_t gpu, std::uint64_t after_us) const {
  std::array<abi::Sample, 256> samples{};
  unsigned type = 0;
  auto count = static_cast<unsigned>(samples.size());
  const auto asked = library_->nvml.call({"nvmlDeviceGetSamples"}, library_->handles[gpu], abi::kSamplesOfPower,
                                         static_cast<unsigned long long>(after_us), &type, &count, samples.data());
  std::vector<Power> found;
  if (!asked || type == abi::kFraction) return found;
  for (const auto& sample : std::span(samples).first(std::min<std::size_t>(count, samples.size())))
    if (sample.at_us > after_us) found.push_back({sample.at_us, sample.number / 1000.0});
  return found;
}

void Monitor::add_energy(model::GpuSample& sample) const {
  const auto handle = library_->handles[static_cast<std::size_t>(sample.gpu)];
  sample.energy_mj =
      derive<std::uint64_t>(library_->nvml.ask<unsigned long long>({"nvmlDeviceGetTotalEnergyConsumption"}, handle),
                            [](unsigned long long millijoules) { return std::uint64_t{millijoules}; });
}

void Monitor::add_traffic(model::GpuSample& sample) const {
  const auto handle = library_->handles[static_cast<std::size_t>(sample.gpu)];
  const auto ask = [&](unsigned direction) {
    return derive<std::uint64_t>(library_->nvml.ask<unsigned>({"nvmlDeviceGetPcieThroughput"}, handle, direction),
                                 [](unsigned kib) { return std::uint64_t{kib}; });
  };
  sample.pcie_tx_kib_s = ask(kTransmit);
  sample.pcie_rx_kib_s = ask(kReceive);
}

std::vector<int> Monitor::processes(std::size_t gpu) const {
  std::vector<int> pids;
  if (const auto all = read_processes(library_->nvml, library_->handles[gpu])) {
    for (const auto& process : *all) pids.push_back(process.pid);
  }
  return pids;
}

}  // namespace fullwatt::vendor::nvml
