#include "fullwatt/doctor/probe/examine.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/probe/probes.hpp"

namespace fullwatt::doctor {
namespace {

using base::Absent;
using base::absent;

/// Reading files takes milliseconds; a disk or a device that hangs must not take the doctor with it.
constexpr std::chrono::seconds kFileLimit{5};

/// Runs `work` on its own thread and waits at most `limit`. A thread that hangs is left behind: whatever it uses must
/// be owned by `work` itself.
template <class Work>
auto within(std::chrono::milliseconds limit, Work work) -> std::optional<decltype(work())> {
  std::packaged_task<decltype(work())()> task(std::move(work));
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(limit) != std::future_status::ready) return std::nullopt;
  return result.get();
}

class Examination {
 public:
  Examination(std::shared_ptr<World> world, const Target& target) : world_(std::move(world)), target_(target) {}

  model::Machine run() {
    machine_.hardware = read_files("hardware", [world = world_] { return probe_hardware(world->files()); });
    machine_.log = target_.log;
    read_process();
    auto vendors = ask_vendors();
    const auto system = read_files("system", [world = world_] { return world->system(); });
    machine_.driver = read_files("driver", [world = world_, system, environment = environment_] {
      return probe_driver(world->files(), system, environment);
    });
    machine_.cuda = read_files("cuda files", [world = world_, system, environment = environment_] {
      return probe_cuda(world->files(), system, environment);
    });
    const int pid = machine_.process ? machine_.process->pid : 0;
    machine_.host = read_files("host", [world = world_, system, environment = environment_, pid] {
      return probe_host(world->files(), system, environment, pid);
    });
    collect(vendors);
    name_processes();
    identify_gpus();
    return std::move(machine_);
  }

 private:
  struct Vendors {
    std::future<model::Nvml> nvml;
    std::future<model::CudaAnswers> cuda;
    std::future<model::TorchAnswers> torch;
  };

  template <class Work>
  std::invoke_result_t<Work> read_files(const std::string& name, Work work) {
    auto result = within(kFileLimit, std::move(work));
    if (!result) machine_.problems.push_back({name, "no answer within 5 s"});
    return result ? *std::move(result) : std::invoke_result_t<Work>{};
  }

  void read_process() {
    environment_ = world_->environment();
    if (target_.pid == 0) return;
    auto process =
        read_files("process", [world = world_, pid = target_.pid] { return probe_process(world->files(), pid); });
    if (!process) {
      machine_.problems.push_back(
          {"process", "process " + std::to_string(target_.pid) + ": " + process.error().detail});
      return;
    }
    machine_.process = *process;
    if (!process->environment.empty()) environment_ = process->environment;
  }

  bool may_touch_gpu() const {
    const auto gpus = machine_.hardware.nvidia();
    return target_.wake || std::ranges::none_of(gpus, [](const auto* gpu) { return gpu->asleep(); });
  }

  /// NVML, libcuda and torch run in children of their own, all at once.
  Vendors ask_vendors() {
    const bool touch = may_touch_gpu();
    machine_.torch = read_files(
        "torch files", [world = world_, target = target_, environment = environment_, process = machine_.process] {
          return probe_torch(world->files(), target, environment, world->environment(), process ? &*process : nullptr);
        });
    Vendors vendors;
    vendors.nvml = std::async(std::launch::async, [this, touch] {
      model::Nvml asleep;
      asleep.library = absent(Absent::asleep);
      asleep.init = absent(Absent::asleep);
      return touch ? world_->nvml(environment_, target_.nvml_limit) : asleep;
    });
    vendors.cuda = std::async(std::launch::async, [this, touch] {
      model::CudaAnswers asleep;
      asleep.library = absent(Absent::asleep);
      asleep.init = absent(Absent::asleep);
      return touch ? world_->cuda(environment_, target_.cuda_limit) : asleep;
    });
    vendors.torch = std::async(std::launch::async, [this, touch, interpreter = machine_.torch.interpreter] {
      if (!target_.torch || interpreter.empty()) return model::TorchAnswers{};
      return world_->torch(interpreter, environment_, touch, target_.torch_limit);
    });
    return vendors;
  }

  void collect(Vendors& vendors) {
    machine_.nvml = vendors.nvml.get();
    machine_.cuda.answers = vendors.cuda.get();
    machine_.torch.answers = vendors.torch.get();
    note_problem("nvml", machine_.nvml.init);
    note_problem("cuda", machine_.cuda.answers.init);
    note_problem("torch", machine_.torch.answers.executable);
  }

  template <class T>
  void note_problem(const std::string& probe, const base::Reading<T>& reading) {
    if (reading || (reading.error().reason != Absent::timed_out && reading.error().reason != Absent::failed)) return;
    machine_.problems.push_back({probe, reading.error().detail});
  }

  /// NVML knows process ids only; their names come from the process list.
  void name_processes() {
    for (auto& device : machine_.nvml.devices) {
      if (!device.processes) continue;
      for (auto& process : *device.processes) {
        const auto& all = machine_.host.system.processes;
        const auto at = std::ranges::find(all, process.pid, &model::RunningProcess::pid);
        if (process.name.empty() && at != all.end()) process.name = at->name;
      }
    }
  }

  model::GpuIdentity& identity(const std::string& bdf) {
    const auto at = std::ranges::find(machine_.gpus, bdf, &model::GpuIdentity::bdf);
    if (at != machine_.gpus.end()) return *at;
    auto& added = machine_.gpus.emplace_back();
    added.bdf = bdf;
    return added;
  }

  /// One table that maps PCI address, UUID, NVML index and CUDA ordinal. Where PCI is invisible (WSL), NVML starts it.
  void identify_gpus() {
    for (const auto* gpu : machine_.hardware.nvidia()) {
      auto& known = identity(gpu->bdf);
      known.name = gpu->name;
      known.uuid = gpu->proc_uuid.value_or("");
    }
    for (const auto& device : machine_.nvml.devices) {
      if (!device.bdf) continue;
      auto& known = identity(*device.bdf);
      known.nvml_index = device.index;
      if (device.name) known.name = *device.name;
      if (device.uuid) known.uuid = *device.uuid;
    }
    for (const auto& device : machine_.cuda.answers.devices) {
      auto& known = identity(device.bdf);
      known.cuda_ordinal = device.ordinal;
      if (known.name.empty()) known.name = device.name;
      if (known.uuid.empty()) known.uuid = device.uuid;
    }
  }

  std::shared_ptr<World> world_;
  Target target_;
  base::Environment environment_;
  model::Machine machine_;
};

}  // namespace

model::Machine examine(std::shared_ptr<World> world, const Target& target) {
  return Examination(std::move(world), target).run();
}

}  // namespace fullwatt::doctor
