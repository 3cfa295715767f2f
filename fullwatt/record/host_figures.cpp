#include "fullwatt/record/host_figures.hpp"

#include <algorithm>

#include <unistd.h>

#include "fullwatt/base/text.hpp"

namespace fullwatt::record {
namespace {

constexpr std::size_t kMostProcesses = 512;
constexpr double kSectorBytes = 512;

/// The number behind a name at the start of a line, as in /proc/meminfo and cgroup files.
double value_of(std::string_view text, std::string_view name) {
  for (auto line : base::lines(text)) {
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    line = base::trim(
        line.substr(line.find_first_not_of(": \t=") == std::string_view::npos ? 0 : line.find_first_not_of(": \t=")));
    return static_cast<double>(base::number<std::uint64_t>(line.substr(0, line.find(' '))).value_or(0));
  }
  return 0;
}

/// The fields of a text, separated by any number of spaces.
std::vector<std::string_view> words(std::string_view text) {
  auto parts = base::split(text, ' ');
  std::erase_if(parts, [](auto part) { return part.empty(); });
  return parts;
}

double number_at(const std::vector<std::string_view>& parts, std::size_t index) {
  return index < parts.size() ? static_cast<double>(base::number<std::uint64_t>(parts[index]).value_or(0)) : 0;
}

/// User and system time in ticks, of a process and of its children that are over: a loader may start its workers anew
/// in every epoch. Its name, in brackets, may hold anything.
double process_ticks(base::Files& files, int pid) {
  const auto text = files.read("/proc/" + std::to_string(pid) + "/stat");
  if (!text) return 0;
  const auto after_name = text->rfind(')');
  if (after_name == std::string::npos) return 0;
  const auto parts = words(std::string_view(*text).substr(after_name + 1));
  double ticks = 0;
  for (const std::size_t field : {11U, 12U, 13U, 14U}) ticks += number_at(parts, field);
  return ticks;
}

/// Whole disks only: their parts would count twice.
double disk_sectors(std::string_view diskstats) {
  double sectors = 0;
  for (auto line : base::lines(diskstats)) {
    const auto parts = words(line);
    if (parts.size() < 6 || parts[2].starts_with("loop") || parts[2].starts_with("ram")) continue;
    const bool part_of_disk = std::isdigit(static_cast<unsigned char>(parts[2].back())) != 0 &&
                              !parts[2].starts_with("nvme") && !parts[2].starts_with("md") &&
                              !parts[2].starts_with("dm");
    const bool nvme_part = parts[2].starts_with("nvme") && base::contains(parts[2], "p");
    if (!part_of_disk && !nvme_part) sectors += number_at(parts, 5);
  }
  return sectors;
}

}  // namespace

std::vector<int> process_tree(base::Files& files, int root) {
  std::vector<int> tree{root};
  for (std::size_t i = 0; i < tree.size() && tree.size() < kMostProcesses; ++i) {
    const auto pid = std::to_string(tree[i]);
    const auto children = files.read("/proc/" + pid + "/task/" + pid + "/children");
    if (!children) continue;
    for (auto child : words(*children)) {
      if (const auto number = base::number<int>(child)) tree.push_back(*number);
    }
  }
  return tree;
}

HostFigures::Counters HostFigures::read(std::uint64_t now_ns, const std::vector<int>& tree,
                                        model::HostSample& sample) const {
  Counters now;
  now.at_ns = now_ns;
  const auto cpu = files_.read("/proc/stat").value_or("");
  const auto ticks = words(base::lines(cpu).empty() ? std::string_view() : base::lines(cpu).front());
  now.iowait_ticks = number_at(ticks, 5);
  now.stolen_ticks = number_at(ticks, 8);
  for (const std::size_t field : {1U, 2U, 3U, 6U, 7U, 8U}) now.busy_ticks += number_at(ticks, field);
  for (const int pid : tree) {
    now.training_ticks += process_ticks(files_, pid);
    const auto statm = files_.read("/proc/" + std::to_string(pid) + "/statm").value_or("");
    const auto pages = words(statm);
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    sample.training_rss_bytes += static_cast<std::uint64_t>(number_at(pages, 1)) * page;
    sample.training_shared_bytes += static_cast<std::uint64_t>(number_at(pages, 2)) * page;
  }
  const auto pressure = files_.read("/proc/pressure/cpu").value_or("");
  if (const auto at = pressure.find("total="); at != std::string::npos) {
    const auto text = std::string_view(pressure).substr(at + 6);
    now.pressure_us =
        static_cast<double>(base::number<std::uint64_t>(text.substr(0, text.find_first_of(" \n"))).value_or(0));
  }
  now.throttled_us = value_of(files_.read("/sys/fs/cgroup/cpu.stat").value_or(""), "throttled_usec");
  now.swap_in_pages = value_of(files_.read("/proc/vmstat").value_or(""), "pswpin");
  now.disk_sectors = disk_sectors(files_.read("/proc/diskstats").value_or(""));
  return now;
}

void HostFigures::read_memory(model::HostSample& sample) const {
  const auto kib = value_of(files_.read("/proc/meminfo").value_or(""), "MemAvailable");
  sample.memory_available_bytes = static_cast<std::uint64_t>(kib * 1024);
}

model::HostSample HostFigures::sample(std::uint64_t now_ns, const std::vector<int>& tree) {
  model::HostSample sample;
  sample.at_ns = now_ns;
  const auto now = read(now_ns, tree, sample);
  read_memory(sample);
  if (last_.at_ns != 0 && now_ns > last_.at_ns) {
    const double seconds = static_cast<double>(now_ns - last_.at_ns) / 1e9;
    const double ticks = seconds * static_cast<double>(::sysconf(_SC_CLK_TCK));
    const auto grown = [](double newer, double older) { return std::max(0.0, newer - older); };
    sample.cpus_busy = grown(now.busy_ticks, last_.busy_ticks) / ticks;
    sample.stolen = grown(now.stolen_ticks, last_.stolen_ticks) / ticks;
    sample.iowait = grown(now.iowait_ticks, last_.iowait_ticks) / ticks;
    sample.cpus_training = grown(now.training_ticks, last_.training_ticks) / ticks;
    sample.cpu_pressure = grown(now.pressure_us, last_.pressure_us) / (seconds * 1e6);
    sample.throttled = grown(now.throttled_us, last_.throttled_us) / (seconds * 1e6);
    sample.swap_in_bytes = static_cast<std::uint64_t>(grown(now.swap_in_pages, last_.swap_in_pages)) *
                           static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    sample.disk_read_bytes = static_cast<std::uint64_t>(grown(now.disk_sectors, last_.disk_sectors) * kSectorBytes);
  }
  last_ = now;
  return sample;
}

}  // namespace fullwatt::record
