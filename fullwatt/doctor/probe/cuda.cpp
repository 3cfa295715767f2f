#include <algorithm>
#include <array>

#include "fullwatt/base/text.hpp"
#include "fullwatt/base/version.hpp"
#include "fullwatt/doctor/probe/probes.hpp"
#include "fullwatt/model/json.hpp"

namespace fullwatt::doctor {
namespace {

using base::Files;

/// Libraries that PyTorch brings itself; another copy earlier on the search path breaks it.
constexpr std::array kLibraries{"libcudnn.so.8",      "libcudnn.so.9",     "libnccl.so.2",    "libnvJitLink.so.12",
                                "libnvJitLink.so.13", "libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13",
                                "libcublas.so.11",    "libcublas.so.12",   "libcublas.so.13"};

/// The file behind a chain of links, as far as it was recorded; at most a few hops.
std::string follow(Files& files, std::string path) {
  for (int hops = 0; hops < 8; ++hops) {
    const auto link = files.read_link(path);
    if (!link) break;
    path = link->starts_with('/') ? *link : base::normal_path(std::string(base::folder_of(path)) + "/" + *link);
  }
  return path;
}

std::vector<model::FoundLibrary> find_library(Files& files, const std::vector<SearchFolder>& folders,
                                              const std::string& name) {
  std::vector<model::FoundLibrary> found;
  for (const auto& folder : folders) {
    const auto path = folder.path + "/" + name;
    if (!files.exists(path)) continue;
    const auto target = follow(files, path);
    // /lib is /usr/lib on merged systems: the same file under two names is one.
    const auto is_same = [&](const auto& known) {
      return base::file_name(known.target) == base::file_name(target) && known.path == "/usr" + path;
    };
    const auto is_merged = [&](const auto& known) { return "/usr" + known.path == path; };
    if (std::ranges::any_of(found, is_same) || std::ranges::any_of(found, is_merged)) continue;
    found.push_back({path, target, base::library_version(base::file_name(target)), folder.origin});
  }
  return found;
}

/// version.json of a toolkit: {"cuda": {"version": "13.0.1"}}.
std::string toolkit_version(Files& files, const std::string& path) {
  const auto text = files.read(path + "/version.json");
  if (text) {
    const auto json = model::Json::parse(*text, nullptr, false);
    if (json.is_object() && json.contains("cuda") && json["cuda"].is_object() && json["cuda"].contains("version") &&
        json["cuda"]["version"].is_string()) {
      return json["cuda"]["version"].get<std::string>();
    }
  }
  const auto name = base::file_name(path);
  return name.starts_with("cuda-") ? std::string(name.substr(5)) : std::string{};
}

/// The folder of the first nvcc on PATH, or what CUDA_HOME names.
std::string chosen_toolkit(Files& files, const base::Environment& environment) {
  for (const auto* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const auto at = environment.find(name); at != environment.end() && !at->second.empty())
      return follow(files, base::normal_path(at->second));
  }
  const auto path = environment.find("PATH");
  if (path == environment.end()) return {};
  for (auto folder : base::split(path->second, ':')) {
    if (!folder.starts_with('/') || !files.exists(std::string(folder) + "/nvcc")) continue;
    return follow(files, std::string(base::folder_of(base::normal_path(folder))));
  }
  return {};
}

std::vector<model::Toolkit> find_toolkits(Files& files, const base::Environment& environment) {
  std::vector<model::Toolkit> toolkits;
  const auto chosen = chosen_toolkit(files, environment);
  const auto names = files.list("/usr/local", "cuda");
  for (const auto& name : names.value_or(std::vector<std::string>{})) {
    if (!name.starts_with("cuda-")) continue;
    const auto path = "/usr/local/" + name;
    if (!files.exists(path + "/version.json") && !files.exists(path + "/bin/nvcc")) continue;
    toolkits.push_back({path, toolkit_version(files, path), path == chosen});
  }
  const auto is_chosen = [&](const auto& toolkit) { return toolkit.path == chosen; };
  if (!chosen.empty() && std::ranges::none_of(toolkits, is_chosen)) {
    toolkits.push_back({chosen, toolkit_version(files, chosen), true});
  }
  return toolkits;
}

bool on_path(Files& files, const base::Environment& environment, std::initializer_list<const char*> programs) {
  const auto path = environment.find("PATH");
  if (path == environment.end()) return false;
  for (auto folder : base::split(path->second, ':')) {
    for (const auto* program : programs) {
      if (folder.starts_with('/') && files.exists(std::string(folder) + "/" + program)) return true;
    }
  }
  return false;
}

base::Reading<bool> cache_writable(Files& files, const base::Environment& environment) {
  auto folder = environment.contains("CUDA_CACHE_PATH") ? environment.at("CUDA_CACHE_PATH") : std::string{};
  if (folder.empty()) {
    const auto home = environment.find("HOME");
    if (home == environment.end()) return base::absent(base::Absent::not_there);
    folder = home->second + "/.nv/ComputeCache";
  }
  const auto info = files.info(folder);
  if (!info) return info.error();
  const auto error = files.open_error(folder + "/index");
  return error != EACCES && error != EROFS;
}

}  // namespace

model::Cuda probe_cuda(base::Files& files, const model::System& system, const base::Environment& environment) {
  model::Cuda cuda;
  const auto folders = loader_folders(files, environment);
  cuda.libcuda = find_library(files, folders, "libcuda.so.1");
  cuda.libcuda_link = std::ranges::any_of(folders, [&](const auto& f) { return files.exists(f.path + "/libcuda.so"); });
  for (const auto* name : kLibraries) {
    std::ranges::move(find_library(files, folders, name), std::back_inserter(cuda.libraries));
  }
  cuda.toolkits = find_toolkits(files, environment);
  cuda.compiler = on_path(files, environment, {"cc", "gcc", "clang"});
  const auto pipe = environment.find("CUDA_MPS_PIPE_DIRECTORY");
  cuda.mps_control_pipe = files.exists((pipe == environment.end() ? "/tmp/nvidia-mps" : pipe->second) + "/control");
  cuda.mps_daemon =
      std::ranges::any_of(system.processes, [](const auto& p) { return p.name.starts_with("nvidia-cuda-mps"); });
  cuda.jit_cache_writable = cache_writable(files, environment);
  return cuda;
}

}  // namespace fullwatt::doctor
