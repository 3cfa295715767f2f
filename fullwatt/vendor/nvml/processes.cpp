#include "fullwatt/vendor/nvml/processes.hpp"

#include <algorithm>
#include <cstring>

namespace fullwatt::vendor::nvml {
namespace {

using Processes = std::vector<model::GpuProcess>;

/// Rounds of asking again with more room while processes come and go.
constexpr int kRounds = 4;
constexpr unsigned kFirstRoom = 64;
constexpr unsigned kMostRoom = 1U << 16U;
/// Fills the table before the call, so that the bytes the driver wrote can be told from those it left alone. No layout
/// ends in such a byte: they end in the high byte of a size or of an instance id.
constexpr unsigned char kUntouched = 0xa5;

using Table = std::vector<unsigned char>;

/// The size of one entry cannot be known from the function's name: early drivers of the 535 line wrote 32 bytes where
/// the others write 24 (XuehaiPan/nvitop#79). It is the smallest layout that reaches the last byte written, also where
/// a driver clears the entries that it does not need.
std::size_t entry_bytes(const Table& table, std::size_t count) {
  const auto last = std::find_if(table.rbegin(), table.rend(), [](unsigned char byte) { return byte != kUntouched; });
  const auto written = static_cast<std::size_t>(table.rend() - last);
  const std::size_t longest = abi::kProcessInfoBytes.back();
  const std::size_t entries = written <= longest * count ? count : table.size() / longest;
  return *std::ranges::find_if(abi::kProcessInfoBytes, [&](auto bytes) { return bytes * entries >= written; });
}

model::GpuProcess process_at(const unsigned char* entry, const char* kind) {
  abi::ProcessHead head{};
  std::memcpy(&head, entry, sizeof head);
  model::GpuProcess process;
  process.pid = static_cast<int>(head.pid);
  process.memory_bytes = head.used_bytes;
  process.kind = kind;
  if (head.used_bytes == abi::kNotAvailable) process.memory_bytes = base::absent(base::Absent::unsupported);
  return process;
}

Processes processes_in(const Table& table, unsigned count, const char* kind) {
  const std::size_t bytes = entry_bytes(table, count);
  Processes processes;
  for (std::size_t at = 0; processes.size() < count && at + bytes <= table.size(); at += bytes) {
    processes.push_back(process_at(table.data() + at, kind));
  }
  return processes;
}

Reading<Processes> ask(const Functions& nvml, Functions::Names names, abi::Device handle, const char* kind) {
  unsigned room = kFirstRoom;
  for (int round = 0; round < kRounds; ++round) {
    Table table(room * abi::kProcessInfoBytes.back(), kUntouched);
    unsigned count = room;
    const auto outcome = nvml.call(names, handle, &count, static_cast<void*>(table.data()));
    if (outcome) return processes_in(table, count, kind);
    if (outcome.error().code != abi::kInsufficientSize) return outcome.error();
    room = std::min(std::max(room, count), kMostRoom / 2) * 2;
  }
  return absence_of(abi::kInsufficientSize);
}

}  // namespace

Reading<Processes> read_processes(const Functions& nvml, abi::Device handle) {
  auto all = ask(nvml,
                 {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
                  "nvmlDeviceGetComputeRunningProcesses"},
                 handle, "compute");
  if (!all) return all;
  const auto graphics = ask(nvml,
                            {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2",
                             "nvmlDeviceGetGraphicsRunningProcesses"},
                            handle, "graphics");
  if (graphics) {
    all->insert(all->end(), graphics->begin(), graphics->end());
  } else if (graphics.error().reason != base::Absent::unsupported) {
    return graphics.error();
  }
  return all;
}

}  // namespace fullwatt::vendor::nvml
