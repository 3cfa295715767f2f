// Libraries around PyTorch that do not fit it: copies that hide its own, and packages built for another one.

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/doctor/rules/rule.hpp"
#include "fullwatt/doctor/rules/torch_facts.hpp"

namespace fullwatt::doctor {
namespace {

using base::contains;
using base::Version;
using model::Machine;
using model::Severity;

/// The message of an import that failed; empty when it did not.
std::string import_error(const Machine& machine) {
  const auto& version = machine.torch.answers.version;
  return !version && version.error().reason == base::Absent::failed ? version.error().detail : std::string{};
}

/// Libraries in memory, and where they were seen: of the process asked about, else of our own import.
std::pair<std::vector<std::string>, std::string> loaded_libraries(const Machine& machine) {
  if (!machine.process) return {machine.torch.answers.libraries, "import torch"};
  return {machine.process->libraries, fmt::format("/proc/{}/maps", machine.process->pid)};
}

/// Whether a loaded file is one that PyTorch brought, also where its folder is reached by another name.
bool is_bundled(const model::TorchInstall& install, const std::string& path) {
  return std::ranges::any_of(install.bundled,
                             [&](const auto& own) { return path.ends_with(own.substr(install.site.size())); });
}

bool brings(const model::TorchInstall& install, std::string_view library) {
  return std::ranges::any_of(install.bundled,
                             [&](const auto& own) { return base::file_name(own).starts_with(library); });
}

/// Copies of a library that were loaded although PyTorch brings its own. Builds without their own copy (conda, NVIDIA's
/// containers) are meant to take the system's.
std::vector<std::string> shadows(const Machine& machine, std::string_view library) {
  std::vector<std::string> found;
  const auto* install = machine.torch.active();
  if (install == nullptr || !brings(*install, library)) return found;
  for (const auto& path : loaded_libraries(machine).first) {
    if (base::file_name(path).starts_with(library) && !is_bundled(*install, path)) found.push_back(path);
  }
  return found;
}

void show_search_path(const Machine& machine, std::string_view library, Match& match) {
  if (const auto paths = machine.variable("LD_LIBRARY_PATH")) {
    match.saw("LD_LIBRARY_PATH", base::printable(*paths, 300), environment_source(machine));
  }
  const auto is_it = [&](const auto& found) { return base::file_name(found.path).starts_with(library); };
  const auto first = std::ranges::find_if(machine.cuda.libraries, is_it);
  if (first != machine.cuda.libraries.end()) match.saw("first on the search path", first->target, first->origin);
}

std::optional<Match> shadowed(const Machine& machine, std::string_view library) {
  const auto found = shadows(machine, library);
  if (found.empty()) return std::nullopt;
  Match match;
  for (const auto& path : found) match.saw("loaded", path, loaded_libraries(machine).second);
  show_search_path(machine, library, match);
  return match;
}

std::optional<Match> import_stopped(const Machine& machine, std::string_view symbol, std::string_view library) {
  const auto error = import_error(machine);
  if (!contains(error, symbol)) return std::nullopt;
  Match match;
  match.saw("import torch", base::printable(base::trim(error), 300), machine.torch.interpreter);
  show_search_path(machine, library, match);
  return match;
}

std::optional<Match> cudnn_shadowed(const Machine& machine) {
  const auto& cudnn = machine.torch.answers.cudnn;
  const bool refused = !cudnn && contains(cudnn.error().detail, "cuDNN version incompatibility");
  auto match = shadowed(machine, "libcudnn");
  if (!match && !refused) return std::nullopt;
  if (!match) match.emplace();
  if (refused) match->saw("torch.backends.cudnn.version()", base::printable(cudnn.error().detail, 300));
  if (!refused && !log_shows(machine, "cudnn-shadowed")) match->severity = Severity::warning;
  return match;
}

std::optional<Match> nvjitlink_shadowed(const Machine& machine) {
  return import_stopped(machine, "__nvJitLink", "libnvJitLink");
}

std::optional<Match> nccl_shadowed(const Machine& machine) {
  if (auto match = import_stopped(machine, "undefined symbol: nccl", "libnccl")) return match;
  auto match = shadowed(machine, "libnccl");
  // A tuned NCCL of the cluster is loaded this way on purpose; it is worth knowing, and works.
  if (match && !log_shows(machine, "nccl-shadowed")) match->severity = Severity::note;
  return match;
}

/// "2.11.0+cu130" → "cu130"; empty for versions that do not name the CUDA they were built for.
std::string build_tag(const std::string& version) {
  const auto plus = version.find('+');
  const auto tag = plus == std::string::npos ? std::string{} : version.substr(plus + 1);
  return tag.starts_with("cu") || tag.starts_with("cpu") || tag.starts_with("rocm") ? tag : std::string{};
}

/// The minor version of torchvision that is released with a PyTorch: 0.15 came with 2.0 and 0.14 with 1.13, both count
/// on.
int torchvision_minor(const Version& torch) {
  return torch.major() == 1 ? torch.minor() + 1 : torch.minor() + 15;
}

bool versions_fit(const std::string& torch, const std::string& torchvision) {
  const Version pytorch(torch);
  const Version vision(torchvision);
  const bool judged =
      pytorch.known() && vision.known() && vision.major() == 0 && pytorch.major() >= 1 && pytorch.major() <= 2;
  const bool nightly = contains(torch, "dev") || contains(torchvision, "dev");
  return !judged || nightly || vision.minor() == torchvision_minor(pytorch);
}

bool builds_fit(const std::string& torch, const std::string& torchvision) {
  const auto pytorch = build_tag(torch);
  const auto vision = build_tag(torchvision);
  return pytorch.empty() || vision.empty() || pytorch == vision;
}

std::optional<Match> torchvision_mismatch(const Machine& machine) {
  const auto* install = machine.torch.active();
  const auto build = torch_build(machine);
  const bool known = install != nullptr && build && !install->torchvision.empty();
  const bool fits = !known || (versions_fit(build->version, install->torchvision) &&
                               builds_fit(build->version, install->torchvision));
  const bool in_log = log_shows(machine, "torchvision-mismatch");
  if (fits && !in_log) return std::nullopt;
  Match match;
  add_install_facts(machine, match);
  if (known) match.saw("torch", build->version, build->path).saw("torchvision", install->torchvision, install->site);
  if (!in_log) match.severity = Severity::warning;
  return match;
}

/// Where libcuda.so.1 lies.
std::string libcuda_folder(const Machine& machine) {
  if (!machine.cuda.libcuda.empty()) return std::string(base::folder_of(machine.cuda.libcuda.front().path));
  return machine.host.system.machine == "aarch64" ? "/usr/lib/aarch64-linux-gnu" : "/usr/lib/x86_64-linux-gnu";
}

/// Older linkers end the line after the name; what goes on with a letter is another library, such as -lcudart.
std::optional<std::string> linker_line(const Machine& machine) {
  constexpr std::string_view kText = "cannot find -lcuda";
  for (const auto& line : machine.log.value_or(std::vector<std::string>{})) {
    const auto at = line.find(kText);
    if (at != std::string::npos && base::trim(line.substr(at + kText.size())).empty()) return line;
  }
  return std::nullopt;
}

/// What Triton needs and this machine lacks: a C compiler always, the plain libcuda.so before Triton 3.6 (PyTorch 2.10,
/// triton-lang/triton PR#8668).
void show_missing_parts(const Machine& machine, Match& match) {
  const auto build = torch_build(machine);
  if (!build || build->cuda.empty() || !machine.torch.answers.available.is(true)) return;
  if (!machine.cuda.compiler) match.saw("C compiler on PATH", "none", machine.variable("PATH").value_or("PATH"));
  const bool needs_link = Version(build->version) >= Version("2.0") && Version(build->version) < Version("2.10");
  if (needs_link && !machine.cuda.libcuda_link) match.saw("libcuda.so", "not there", libcuda_folder(machine));
}

std::optional<Match> triton_needs_libcuda_link(const Machine& machine) {
  Match match;
  show_missing_parts(machine, match);
  const auto line = linker_line(machine);
  if (line) match.saw("message", base::printable(base::trim(*line), 300), "training log");
  const bool in_log = line || log_shows(machine, "triton-needs-libcuda-link");
  if (match.evidence.empty() && !in_log) return std::nullopt;
  if (!in_log) match.severity = Severity::note;  // only torch.compile wants it
  return match.fact("path", libcuda_folder(machine));
}

/// The message stands on two lines.
std::optional<Match> mismatch_in_log(const Machine& machine, const std::string& built_for) {
  if (!log_shows(machine, "extension-cuda-mismatch")) return std::nullopt;
  const auto found = captured_in_log(machine, "The detected CUDA version ({cuda}) mismatches", "cuda");
  const auto wanted = captured_in_log(machine, "PyTorch ({version}). Please make sure", "version");
  return Match{}.fact("cuda", found.value_or("unknown")).fact("version", wanted.value_or(built_for));
}

std::optional<Match> extension_cuda_mismatch(const Machine& machine) {
  const auto build = torch_build(machine);
  if (auto match = mismatch_in_log(machine, build ? build->cuda : "unknown")) return match;
  if (!build || build->cuda.empty()) return std::nullopt;
  const auto other_major = [&](const auto& toolkit) {
    const Version version(toolkit.version);
    return toolkit.on_path && version.known() && version.major() != Version(build->cuda).major();
  };
  const auto toolkit = std::ranges::find_if(machine.cuda.toolkits, other_major);
  if (toolkit == machine.cuda.toolkits.end()) return std::nullopt;
  Match match;
  match.severity = Severity::info;  // training does not need nvcc
  match.fact("cuda", toolkit->version).fact("version", build->cuda);
  return match.saw("CUDA toolkit", toolkit->version, toolkit->path).saw("torch.version.cuda", build->cuda, build->path);
}

constexpr std::array kRules{
    Rule{"cudnn-shadowed", kNothing, cudnn_shadowed},
    Rule{"nvjitlink-shadowed", kNothing, nvjitlink_shadowed},
    Rule{"nccl-shadowed", kNothing, nccl_shadowed},
    Rule{"torchvision-mismatch", kNothing, torchvision_mismatch},
    Rule{"triton-needs-libcuda-link", kNothing, triton_needs_libcuda_link},
    Rule{"extension-cuda-mismatch", kNothing, extension_cuda_mismatch},
};

}  // namespace

std::span<const Rule> pytorch_library_rules() {
  return kRules;
}

}  // namespace fullwatt::doctor
