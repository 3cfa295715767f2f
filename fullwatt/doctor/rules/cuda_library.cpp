// Which libcuda a program gets, and whether driver, runtime and GPU fit together.

#include <algorithm>
#include <array>
#include <set>

#include "catalog/catalog.hpp"
#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/doctor/archs.hpp"
#include "fullwatt/doctor/rules/rule.hpp"

namespace fullwatt::doctor {
namespace {

using base::Version;
using model::Machine;
namespace code = model::cuda_code;

std::string code_text(int value) {
  return fmt::format("{} {}", value, catalog::cuda_code_name(value));
}

/// The version of the loaded module; through NVML where /sys does not show it.
std::string module_version(const Machine& machine) {
  return machine.driver.version.value_or(machine.nvml.driver_version.value_or(""));
}

/// The libcuda that counts, and how we know.
struct Libcuda {
  std::string path;
  std::string version;
  std::string where;
};

std::string version_of(const Machine& machine, const std::string& path) {
  const auto at = std::ranges::find(machine.cuda.libcuda, path, &model::FoundLibrary::path);
  return at != machine.cuda.libcuda.end() ? at->version : base::library_version(base::file_name(path));
}

std::optional<Libcuda> mapped_libcuda(const Machine& machine) {
  if (!machine.process) return std::nullopt;
  for (const auto& path : machine.process->libraries) {
    if (!base::file_name(path).starts_with("libcuda.so")) continue;
    return Libcuda{path, version_of(machine, path), fmt::format("/proc/{}/maps", machine.process->pid)};
  }
  return std::nullopt;
}

/// The one the process asked about has loaded, else the one that was loaded to ask, else the first on the search path.
std::optional<Libcuda> chosen_libcuda(const Machine& machine) {
  if (auto mapped = mapped_libcuda(machine)) return mapped;
  const auto& loaded = machine.cuda.answers.library;
  if (loaded) return Libcuda{*loaded, version_of(machine, *loaded), "loaded libcuda"};
  if (machine.cuda.libcuda.empty()) return std::nullopt;
  const auto& first = machine.cuda.libcuda.front();
  return Libcuda{first.target, first.version, first.origin};
}

bool is_stub(std::string_view path) {
  return base::contains(path, "/stubs/");
}

/// The folder of the cuda-compat packages, in the toolkit (/usr/local/cuda/compat) or in conda (…/cuda-compat).
bool is_compat(std::string_view path) {
  return base::contains(path, "/compat/") || base::contains(path, "cuda-compat/");
}

void show_libcuda(Match& match, const Machine& machine, const Libcuda& library) {
  match.saw("libcuda", library.path, library.where);
  if (!library.version.empty()) match.saw("version of libcuda", library.version, library.path);
  if (const auto module = module_version(machine); !module.empty()) match.saw("version of the kernel module", module);
  if (const auto paths = machine.variable("LD_LIBRARY_PATH"))
    match.saw("LD_LIBRARY_PATH", base::printable(*paths, 300));
}

std::optional<Match> libcuda_missing(const Machine& machine) {
  const auto& init = machine.cuda.answers.init;
  if (init || init.error().reason != base::Absent::not_there || !machine.cuda.libcuda.empty()) return std::nullopt;
  // Elsewhere the library comes from the host or from Windows, and other rules look for the reason.
  if (!machine.driver.loaded || machine.driver.container.inside() || machine.driver.wsl.version != 0)
    return std::nullopt;
  const auto& nvml = machine.nvml.init;
  if ((nvml && *nvml != 0) || (!nvml && nvml.error().reason == base::Absent::timed_out)) return std::nullopt;
  Match match;
  match.saw("libcuda.so.1", base::printable(init.error().detail, 200), "dlopen");
  match.saw("version of the kernel module", module_version(machine), "/sys/module/nvidia/version");
  for (const auto& [package, version] : machine.host.system.packages) match.saw("package", package + " " + version);
  return match;
}

std::optional<Match> libcuda_stub_loaded(const Machine& machine) {
  const auto library = chosen_libcuda(machine);
  const bool answered = machine.cuda.answers.init.is(code::kStubLibrary);
  if (!answered && (!library || !is_stub(library->path))) return std::nullopt;
  Match match;
  if (answered) match.saw("cuInit", code_text(code::kStubLibrary));
  if (library) show_libcuda(match, machine, *library);
  return match;
}

/// A 64-bit program never gets these.
bool is_32_bit(std::string_view path, const std::vector<model::FoundLibrary>& all) {
  if (base::contains(path, "i386-linux-gnu") || base::contains(path, "/lib32/")) return true;
  const auto folder = base::folder_of(path);
  const auto in_lib64 = [](const auto& library) { return base::contains(library.path, "/lib64/"); };
  return (folder == "/lib" || folder == "/usr/lib") && std::ranges::any_of(all, in_lib64);
}

/// Copies that belong to a driver: compat and stub copies beside it are normal.
std::vector<model::FoundLibrary> driver_copies(const Machine& machine) {
  auto copies = machine.cuda.libcuda;
  const auto mapped = mapped_libcuda(machine);
  // A file in the same folder took the place of the mapped one, which is gone from the disk.
  const auto replaced = [&](const auto& copy) { return base::folder_of(copy.target) == base::folder_of(mapped->path); };
  if (mapped && std::ranges::none_of(copies, replaced))
    copies.push_back({mapped->path, mapped->path, mapped->version, mapped->where});
  std::erase_if(copies, [&](const auto& library) {
    return library.version.empty() || is_stub(library.target) || is_compat(library.path) || is_compat(library.target) ||
           is_32_bit(library.path, machine.cuda.libcuda);
  });
  return copies;
}

/// Only where one of them fits the module: otherwise the driver was updated and waits for a reboot.
std::optional<Match> libcuda_two_copies(const Machine& machine) {
  if (machine.driver.wsl.version != 0) return std::nullopt;
  const auto copies = driver_copies(machine);
  const auto module = module_version(machine);
  std::set<std::string> versions;
  for (const auto& copy : copies) versions.insert(copy.version);
  if (versions.size() < 2 || !versions.contains(module)) return std::nullopt;
  Match match;
  match.fact("count", std::to_string(versions.size())).fact("driver_version", module);
  match.saw("version of the kernel module", module);
  for (const auto& copy : copies) match.saw(copy.path, copy.version, copy.origin);
  const auto chosen = chosen_libcuda(machine);
  if (chosen && chosen->version != module && machine.cuda.answers.init.is(code::kDriverMismatch)) {
    match.saw("cuInit", code_text(code::kDriverMismatch), chosen->path);
    match.severity = model::Severity::error;
  }
  return match;
}

/// cuInit refused this libcuda: what it says of itself is not what the driver offers.
bool libcuda_refused(const Machine& machine) {
  const auto& init = machine.cuda.answers.init;
  return init.is(code::kStubLibrary) || init.is(code::kDriverMismatch) || init.is(code::kCompatNotSupported);
}

/// The newest CUDA of the driver, 1000 × major + 10 × minor: as it says itself, else by its branch.
std::optional<int> driver_cuda(const Machine& machine) {
  if (machine.cuda.answers.driver_version) return *machine.cuda.answers.driver_version;
  if (machine.nvml.cuda_version) return *machine.nvml.cuda_version;
  const int branch = Version(module_version(machine)).major();
  std::optional<int> newest;
  for (const auto& known : catalog::branch_cudas()) {
    const Version cuda(known.cuda);
    if (known.branch <= branch) newest = 1000 * cuda.major() + 10 * cuda.minor();
  }
  return newest;
}

/// torch.version.cuda of the PyTorch in use; empty for a build without CUDA.
std::string runtime_cuda(const Machine& machine) {
  if (machine.torch.answers.version) return machine.torch.answers.cuda;
  const auto* install = machine.torch.active();
  return install != nullptr ? install->cuda : std::string{};
}

bool below_floor(const Machine& machine, int cuda_major) {
  const auto library = chosen_libcuda(machine);
  // A Windows driver counts differently, and compat is there to run below the floor.
  if (machine.driver.wsl.version != 0 || (library && is_compat(library->path))) return false;
  const auto floors = catalog::cuda_floors();
  const auto floor = std::ranges::find(floors, cuda_major, &catalog::CudaFloor::cuda_major);
  const Version module(module_version(machine));
  return floor != floors.end() && module.known() && module < Version(floor->driver);
}

bool driver_is_too_old(const Machine& machine) {
  const Version runtime(runtime_cuda(machine));
  if (!runtime.known() || machine.torch.answers.available.is(true) || libcuda_refused(machine)) return false;
  const auto driver = driver_cuda(machine);
  return (driver && *driver / 1000 < runtime.major()) || below_floor(machine, runtime.major());
}

/// The driver's CUDA version in PyTorch's own complaint, in the log asked about.
std::optional<int> too_old_in_log(const Machine& machine) {
  if (!machine.log) return std::nullopt;
  constexpr std::string_view kText = "driver on your system is too old (found version ";
  for (std::string_view line : *machine.log) {
    const auto at = line.find(kText);
    if (at == std::string_view::npos) continue;
    const auto rest = line.substr(at + kText.size());
    if (const auto found = base::number<int>(rest.substr(0, rest.find(')')))) return found;
  }
  return std::nullopt;
}

/// The lowest of the GPUs' compute capabilities: a wheel has to serve them all.
std::string lowest_capability(const Machine& machine) {
  std::string lowest;
  const auto consider = [&](const std::string& capability) {
    if (lowest.empty() || Version(capability) < Version(lowest)) lowest = capability;
  };
  for (const auto& device : machine.nvml.devices) {
    if (device.compute_capability) consider(*device.compute_capability);
  }
  if (!lowest.empty()) return lowest;
  for (const auto* gpu : machine.hardware.nvidia()) {
    if (const auto* known = catalog::architecture_of(gpu->device)) consider(std::string(known->compute_capability));
  }
  return lowest;
}

/// A driver branch that offers this CUDA version, to choose a wheel by.
std::string branch_of(int cuda) {
  const auto text = base::cuda_version_text(cuda);
  const auto branches = catalog::branch_cudas();
  const auto at = std::ranges::find(branches, std::string_view(text), &catalog::BranchCuda::cuda);
  return at != branches.end() ? std::to_string(at->branch) : std::string("450");
}

Match too_old_match(const Machine& machine, int cuda, bool seen_here) {
  Match match;
  match.fact("cuda", base::cuda_version_text(cuda));
  match.fact("index_tag", std::string(catalog::wheel_for(branch_of(cuda), lowest_capability(machine))));
  if (!seen_here) return match;
  match.saw("torch.version.cuda", runtime_cuda(machine), machine.torch.answers.file);
  match.saw("CUDA of the driver", base::cuda_version_text(cuda));
  if (const auto module = module_version(machine); !module.empty()) match.saw("driver", module);
  return match;
}

/// The CUDA version of a driver that is too old, from this machine or from the log.
std::optional<Match> too_old(const Machine& machine, bool (*wanted)(int cuda, int runtime_major)) {
  const int runtime = Version(runtime_cuda(machine)).major();
  const bool seen_here = driver_is_too_old(machine);
  const auto cuda = seen_here ? driver_cuda(machine).value_or(10000) : too_old_in_log(machine).value_or(0);
  if (cuda == 0 || !wanted(cuda, seen_here ? runtime : 0)) return std::nullopt;
  return too_old_match(machine, cuda, seen_here);
}

/// Drivers of CUDA 12 fail with CUDA 13 only, and that build comes by default.
bool is_cuda13_on_cuda12(int cuda, int runtime_major) {
  return cuda / 1000 == 12 && (runtime_major == 13 || runtime_major == 0);
}

std::optional<Match> driver_too_old_for_runtime(const Machine& machine) {
  return too_old(machine, [](int cuda, int runtime_major) { return !is_cuda13_on_cuda12(cuda, runtime_major); });
}

std::optional<Match> default_wheel_is_cuda13(const Machine& machine) {
  return too_old(machine, is_cuda13_on_cuda12);
}

std::optional<Match> compat_on_geforce(const Machine& machine) {
  const auto library = chosen_libcuda(machine);
  if (!machine.cuda.answers.init.is(code::kCompatNotSupported) || !library || !is_compat(library->path))
    return std::nullopt;
  Match match;
  match.saw("cuInit", code_text(code::kCompatNotSupported));
  show_libcuda(match, machine, *library);
  for (const auto& gpu : machine.gpus) match.saw("GPU", machine.gpu_label(gpu.bdf));
  return match;
}

std::optional<Match> reboot_pending_804(const Machine& machine) {
  const auto library = chosen_libcuda(machine);
  if (!machine.cuda.answers.init.is(code::kCompatNotSupported) || !library || is_compat(library->path))
    return std::nullopt;
  const auto module = module_version(machine);
  if (module.empty() || Version(library->version) <= Version(module)) return std::nullopt;
  Match match;
  match.fact("library_version", library->version).fact("driver_version", module);
  match.saw("cuInit", code_text(code::kCompatNotSupported));
  show_libcuda(match, machine, *library);
  return match;
}

/// A compat libcuda in use that cuInit refused with one of these codes, and how its version compares to the module's.
std::optional<Match> refused_compat(const Machine& machine, std::initializer_list<int> codes, bool older) {
  const auto library = chosen_libcuda(machine);
  const auto& init = machine.cuda.answers.init;
  if (!init || std::ranges::find(codes, *init) == codes.end() || !library || !is_compat(library->path))
    return std::nullopt;
  const auto module = module_version(machine);
  if (module.empty() || library->version.empty() || (Version(library->version) < Version(module)) != older)
    return std::nullopt;
  Match match;
  match.fact("path", library->path).fact("library_version", library->version).fact("driver_version", module);
  match.saw("cuInit", code_text(*init));
  show_libcuda(match, machine, *library);
  return match;
}

std::optional<Match> compat_libcuda_mismatch(const Machine& machine) {
  return refused_compat(machine, {code::kDriverMismatch}, false);
}

std::optional<Match> compat_older_than_driver(const Machine& machine) {
  const auto visible = machine.variable("CUDA_VISIBLE_DEVICES");
  if (visible) return refused_compat(machine, {code::kDriverMismatch}, true);  // which can hide every GPU by itself
  return refused_compat(machine, {code::kNoDevice, code::kDriverMismatch}, true);
}

/// Devices on which the test kernel or a matrix product of torch ended with this code or text.
Match failed_with(const Machine& machine, int wanted, std::string_view text) {
  Match match;
  for (const auto& device : machine.cuda.answers.devices) {
    if (device.launch.is(wanted))
      match.about(machine, device.bdf).saw("running a kernel", code_text(wanted), machine.gpu_label(device.bdf));
  }
  for (const auto& device : machine.torch.answers.devices) {
    if (!device.operation || !base::contains(*device.operation, text)) continue;
    match.saw("a matrix product on " + device.name, base::printable(*device.operation, 200),
              machine.torch.answers.file);
  }
  return match;
}

std::optional<Match> ptx_newer_than_driver(const Machine& machine) {
  auto match = failed_with(machine, code::kUnsupportedPtx, "PTX was compiled with an unsupported toolchain");
  if (match.evidence.empty()) return std::nullopt;
  if (const auto cuda = driver_cuda(machine)) match.saw("CUDA of the driver", base::cuda_version_text(*cuda));
  if (const auto runtime = runtime_cuda(machine); !runtime.empty()) match.saw("torch.version.cuda", runtime);
  return match;
}

/// Not where the build of torch itself lacks the GPU: that has its own rules.
std::optional<Match> no_binary_for_gpu(const Machine& machine) {
  auto match = failed_with(machine, code::kNoBinaryForGpu, "no kernel image is available");
  if (match.evidence.empty()) return std::nullopt;
  const auto& archs = machine.torch.answers.archs;
  const auto lacks = [&](const auto& device) { return !archs.empty() && !covers(archs, device.compute_capability); };
  if (std::ranges::any_of(machine.torch.answers.devices, lacks)) return std::nullopt;
  for (const auto& device : machine.cuda.answers.devices) {
    match.saw("compute capability", device.compute_capability, machine.gpu_label(device.bdf));
  }
  return match;
}

constexpr std::array kRules{
    Rule{"libcuda-missing", kNothing, libcuda_missing},
    Rule{"libcuda-stub-loaded", kNothing, libcuda_stub_loaded},
    Rule{"libcuda-two-copies", kNothing, libcuda_two_copies},
    Rule{"driver-too-old-for-runtime", kNothing, driver_too_old_for_runtime},
    Rule{"default-wheel-is-cuda13", kNothing, default_wheel_is_cuda13},
    Rule{"compat-on-geforce", kCuda, compat_on_geforce},
    Rule{"reboot-pending-804", kCuda, reboot_pending_804},
    Rule{"compat-libcuda-mismatch", kCuda, compat_libcuda_mismatch},
    Rule{"compat-older-than-driver", kCuda, compat_older_than_driver},
    Rule{"ptx-newer-than-driver", kCuda, ptx_newer_than_driver},
    Rule{"no-binary-for-gpu", kCuda, no_binary_for_gpu},
};

}  // namespace

std::span<const Rule> cuda_library_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
