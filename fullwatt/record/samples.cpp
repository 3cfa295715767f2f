#include "fullwatt/record/samples.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>

#include "fullwatt/base/files.hpp"

namespace fullwatt::record {
namespace {

constexpr std::string_view kMagic = "FWSAMPL1";
constexpr std::int32_t kHost = -1;
constexpr std::int32_t kPower = -2;  ///< and below: of GPU 0, and so on
constexpr std::int32_t kMostGpus = 1024;

/// One sample on the disk. Bit n of `valid` tells whether value n is there.
struct Line {
  std::uint64_t at_ns = 0;
  std::int32_t gpu = kHost;
  std::uint32_t valid = 0;
  std::array<double, 11> values{};

  template <class T>
  void put(std::size_t index, const base::Reading<T>& reading) {
    if (!reading) return;
    values[index] = static_cast<double>(*reading);
    valid |= 1U << index;
  }
  template <class T>
  base::Reading<T> get(std::size_t index) const {
    if ((valid & (1U << index)) == 0 || !std::isfinite(values[index])) return base::absent(base::Absent::unsupported);
    return static_cast<T>(values[index]);
  }
};
static_assert(sizeof(Line) == 104);

Line line_of(const model::GpuSample& sample) {
  Line line;
  line.at_ns = sample.at_ns;
  line.gpu = sample.gpu;
  line.put(0, sample.power_w);
  line.put(1, sample.utilization_percent);
  line.put(2, sample.memory_utilization_percent);
  line.put(3, sample.memory_used_bytes);
  line.put(4, sample.sm_clock_mhz);
  line.put(5, sample.memory_clock_mhz);
  line.put(6, sample.temperature_c);
  line.put(7, sample.throttle_reasons);
  line.put(8, sample.energy_mj);
  line.put(9, sample.pcie_rx_kib_s);
  line.put(10, sample.pcie_tx_kib_s);
  return line;
}

model::GpuSample gpu_sample_of(const Line& line) {
  model::GpuSample sample;
  sample.at_ns = line.at_ns;
  sample.gpu = line.gpu;
  sample.power_w = line.get<double>(0);
  sample.utilization_percent = line.get<int>(1);
  sample.memory_utilization_percent = line.get<int>(2);
  sample.memory_used_bytes = line.get<std::uint64_t>(3);
  sample.sm_clock_mhz = line.get<int>(4);
  sample.memory_clock_mhz = line.get<int>(5);
  sample.temperature_c = line.get<int>(6);
  sample.throttle_reasons = line.get<std::uint64_t>(7);
  sample.energy_mj = line.get<std::uint64_t>(8);
  sample.pcie_rx_kib_s = line.get<std::uint64_t>(9);
  sample.pcie_tx_kib_s = line.get<std::uint64_t>(10);
  return sample;
}

Line line_of(const model::PowerSample& sample) {
  Line line;
  line.at_ns = sample.at_ns;
  line.gpu = kPower - sample.gpu;
  line.put(0, base::Reading<double>(sample.watts));
  return line;
}

Line line_of(const model::HostSample& sample) {
  Line line;
  line.at_ns = sample.at_ns;
  line.valid = ~0U;
  line.values = {sample.cpus_busy,
                 sample.cpus_training,
                 sample.iowait,
                 sample.cpu_pressure,
                 sample.throttled,
                 static_cast<double>(sample.memory_available_bytes),
                 static_cast<double>(sample.swap_in_bytes),
                 static_cast<double>(sample.disk_read_bytes),
                 static_cast<double>(sample.training_rss_bytes),
                 sample.stolen,
                 static_cast<double>(sample.training_shared_bytes)};
  return line;
}

model::HostSample host_sample_of(const Line& line) {
  const auto number = [&](std::size_t index) { return line.get<double>(index).value_or(0); };
  const auto bytes = [&](std::size_t index) { return static_cast<std::uint64_t>(std::max(0.0, number(index))); };
  return {line.at_ns, number(0), number(1), number(2), number(3), number(4),
          bytes(5),   bytes(6),  bytes(7),  bytes(8),  number(9), bytes(10)};
}

int gpu_of(const model::HostSample& /*sample*/) {
  return 0;
}

int gpu_of(const auto& sample) {
  return sample.gpu;
}

template <class T>
void add_bounded(std::vector<T>& samples, const T& sample) {
  if (samples.size() >= Samples::kMost) {
    std::map<int, std::size_t> seen;  // of each GPU
    std::erase_if(samples, [&](const T& one) { return seen[gpu_of(one)]++ % 2 == 1; });
  }
  samples.push_back(sample);
}

}  // namespace

void Samples::add(const model::GpuSample& sample) {
  add_bounded(gpu_, sample);
}

void Samples::add(const model::PowerSample& sample) {
  add_bounded(power_, sample);
}

void Samples::add(const model::HostSample& sample) {
  add_bounded(host_, sample);
}

base::Result<void> Samples::write(const std::string& path) const {
  std::string bytes(kMagic);
  const auto append = [&](const Line& line) { bytes.append(reinterpret_cast<const char*>(&line), sizeof(line)); };
  for (const auto& sample : gpu_) append(line_of(sample));
  for (const auto& sample : power_) append(line_of(sample));
  for (const auto& sample : host_) append(line_of(sample));
  return base::write_whole(path, bytes);
}

base::Result<Samples> Samples::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (!bytes.starts_with(kMagic)) return base::fail(base::Error::Kind::bad_input, path + " holds no samples");
  Samples samples;
  for (auto at = kMagic.size(); at + sizeof(Line) <= bytes.size(); at += sizeof(Line)) {
    Line line;
    std::memcpy(&line, bytes.data() + at, sizeof(line));
    if (line.gpu == kHost) {
      samples.add(host_sample_of(line));
    } else if (line.gpu >= 0 && line.gpu < kMostGpus) {
      samples.add(gpu_sample_of(line));
    } else if (line.gpu <= kPower && line.gpu > kPower - kMostGpus) {
      if (const auto watts = line.get<double>(0))
        samples.add(model::PowerSample{line.at_ns, kPower - line.gpu, *watts});
    }
  }
  return samples;
}

}  // namespace fullwatt::record
