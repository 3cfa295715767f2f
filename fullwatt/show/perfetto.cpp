#include "fullwatt/show/perfetto.hpp"

#include <algorithm>
#include <limits>

#include "fullwatt/show/perfetto_process.hpp"
#include "fullwatt/show/trace_writer.hpp"

namespace fullwatt::show {
namespace {

/// Numbers for figures that belong to no process.
constexpr std::uint64_t kGpuFigures = 2'000'000'000;
constexpr std::uint64_t kHostFigures = 2'100'000'000;

std::uint64_t first_time(const model::Run& run) {
  auto first = std::numeric_limits<std::uint64_t>::max();
  const auto see = [&](std::uint64_t at) { first = at > 0 ? std::min(first, at) : first; };
  for (const auto& process : run.processes) {
    see(process.opened_ns);
    for (const auto& activity : process.activities) see(activity.start_ns);
    for (const auto& call : process.calls) see(call.start_ns);
    for (const auto& fetch : process.fetches) see(fetch.start_ns);
    for (const auto& span : process.phases) see(span.start_ns);
  }
  for (const auto& sample : run.gpu_samples) see(sample.at_ns);
  for (const auto& sample : run.host_samples) see(sample.at_ns);
  return first == std::numeric_limits<std::uint64_t>::max() ? 0 : first;
}

template <class T>
void figure(TraceWriter& writer, std::uint64_t process, std::string_view name, std::uint64_t at_ns,
            const base::Reading<T>& reading, double unit = 1) {
  if (reading) writer.counter(process, name, at_ns, static_cast<double>(*reading) / unit);
}

void gpu_figures(TraceWriter& writer, const model::Run& run) {
  for (std::size_t i = 0; i < run.info.gpus.size(); ++i)
    writer.process(kGpuFigures + i, quoted(run.info.gpus[i].name), 1000 + static_cast<int>(i));
  for (const auto& sample : run.gpu_samples) {
    const auto gpu = kGpuFigures + static_cast<std::uint64_t>(std::max(0, sample.gpu));
    figure(writer, gpu, "\"power, W\"", sample.at_ns, sample.power_w);
    figure(writer, gpu, "\"utilisation, %\"", sample.at_ns, sample.utilization_percent);
    figure(writer, gpu, "\"memory, GiB\"", sample.at_ns, sample.memory_used_bytes, 1024.0 * 1024 * 1024);
    figure(writer, gpu, "\"SM clock, MHz\"", sample.at_ns, sample.sm_clock_mhz);
    figure(writer, gpu, "\"temperature, C\"", sample.at_ns, sample.temperature_c);
  }
}

void host_figures(TraceWriter& writer, const model::Run& run) {
  if (!run.host_samples.empty()) writer.process(kHostFigures, "\"host\"", 2000);
  for (const auto& sample : run.host_samples) {
    writer.counter(kHostFigures, "\"CPUs of the training\"", sample.at_ns, sample.cpus_training);
    writer.counter(kHostFigures, "\"CPUs busy\"", sample.at_ns, sample.cpus_busy);
    writer.counter(kHostFigures, "\"disk read, MB\"", sample.at_ns, static_cast<double>(sample.disk_read_bytes) / 1e6);
  }
}

}  // namespace

void write_perfetto(const model::Run& run, std::ostream& out) {
  TraceWriter writer(out, first_time(run));
  for (std::size_t i = 0; i < run.processes.size(); ++i) write_process(writer, run.processes[i], i);
  gpu_figures(writer, run);
  host_figures(writer, run);
}

}  // namespace fullwatt::show
