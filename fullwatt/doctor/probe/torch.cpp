#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "fullwatt/base/text.hpp"
#include "fullwatt/doctor/probe/probes.hpp"
#include "fullwatt/model/json.hpp"

namespace fullwatt::doctor {
namespace {

using base::Files;

std::string variable(const base::Environment& environment, const std::string& name) {
  const auto at = environment.find(name);
  return at == environment.end() ? std::string{} : at->second;
}

std::string first_on_path(Files& files, const base::Environment& environment, const std::string& program) {
  const auto path = variable(environment, "PATH");
  for (auto folder : base::split(path, ':')) {
    const auto candidate = std::string(folder) + "/" + program;
    if (folder.starts_with('/') && files.exists(candidate)) return candidate;
  }
  return {};
}

/// Folders with packages below a prefix: lib/python3.X/site-packages, and Debian's dist-packages. Asked for one by one:
/// listing /usr/lib would record the whole machine.
std::vector<std::string> package_folders(Files& files, const std::string& prefix) {
  constexpr int kNewestPython = 20;
  std::vector<std::string> versions{"python3"};
  for (int minor = 6; minor <= kNewestPython; ++minor) versions.push_back("python3." + std::to_string(minor));
  std::vector<std::string> folders;
  for (const auto& version : versions) {
    for (const auto* packages : {"/site-packages", "/dist-packages"}) {
      auto folder = prefix + "/lib/" + version + packages;
      if (files.exists(folder)) folders.push_back(std::move(folder));
    }
  }
  return folders;
}

/// Whether the installation that an interpreter belongs to holds torch.
bool has_torch(Files& files, const std::string& interpreter) {
  const auto folders = package_folders(files, std::string(base::folder_of(base::folder_of(interpreter))));
  return std::ranges::any_of(folders, [&](const auto& folder) { return files.exists(folder + "/torch/version.py"); });
}

/// What `python train.py` starts in a shell, and how we know; both empty when there is none.
std::pair<std::string, std::string> shell_interpreter(Files& files, const base::Environment& environment) {
  for (const auto* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const auto prefix = variable(environment, name);
    if (!prefix.empty() && files.exists(prefix + "/bin/python")) return {prefix + "/bin/python", name};
  }
  // Both names are in use, and they may belong to different installations: the one with torch is meant.
  const auto python = first_on_path(files, environment, "python");
  const auto python3 = first_on_path(files, environment, "python3");
  const bool prefer_python3 = python.empty() || (!has_torch(files, python) && has_torch(files, python3));
  const auto& chosen = prefer_python3 ? python3 : python;
  return {chosen, chosen.empty() ? "" : "PATH"};
}

/// The interpreter that the training uses, or would use.
void choose_interpreter(Files& files, const Target& target, const base::Environment& environment,
                        const base::Environment& shell, const model::Process* process, model::Torch& torch) {
  if (!target.python.empty()) {
    torch.interpreter = target.python;
    torch.interpreter_origin = "--python";
    return;
  }
  if (process != nullptr && !process->python.empty()) {
    torch.interpreter = process->python;
    torch.interpreter_origin = "process " + std::to_string(process->pid);
    torch.shell_interpreter = shell_interpreter(files, shell).first;
    return;
  }
  std::tie(torch.interpreter, torch.interpreter_origin) = shell_interpreter(files, environment);
}

/// The value of `name = 'value'` in torch/version.py; empty for None.
std::string assigned(std::string_view text, std::string_view name) {
  for (auto line : base::lines(text)) {
    if (!line.starts_with(name)) continue;
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const auto before = base::trim(line.substr(0, equals));
    if (before != name && !before.starts_with(std::string(name) + ":")) continue;
    const auto value = base::trim(line.substr(equals + 1));
    if (value.size() < 2 || (value.front() != '\'' && value.front() != '"')) return {};
    return std::string(value.substr(1, value.size() - 2));
  }
  return {};
}

/// "torchvision-0.26.0+cu130.dist-info" → "0.26.0+cu130".
std::string dist_version(std::string_view name, std::string_view package) {
  const auto prefix = std::string(package) + "-";
  constexpr std::string_view kSuffix = ".dist-info";
  if (!name.starts_with(prefix) || !name.ends_with(kSuffix)) return {};
  return std::string(name.substr(prefix.size(), name.size() - prefix.size() - kSuffix.size()));
}

/// llama-cpp-python carries its back ends as shared libraries; one without ggml-cuda computes on the processor.
std::string llama_back_end(Files& files, const std::string& site) {
  const auto names = files.list(site + "/llama_cpp/lib");
  if (!names) return {};
  const auto is_cuda = [](const std::string& name) { return base::contains(name, "ggml-cuda"); };
  const auto is_other_gpu = [](const std::string& name) {
    return base::contains(name, "ggml-vulkan") || base::contains(name, "ggml-hip") || base::contains(name, "ggml-sycl");
  };
  if (std::ranges::any_of(*names, is_cuda)) return "cuda";
  return std::ranges::any_of(*names, is_other_gpu) ? "other" : "cpu";
}

void read_neighbours(Files& files, model::TorchInstall& install) {
  for (const auto& name : files.list(install.site, "torchvision-").value_or(std::vector<std::string>{})) {
    if (const auto version = dist_version(name, "torchvision"); !version.empty()) install.torchvision = version;
  }
  for (const auto& name : files.list(install.site, "onnxruntime").value_or(std::vector<std::string>{})) {
    if (const auto version = dist_version(name, "onnxruntime_gpu"); !version.empty()) install.onnxruntime_gpu = version;
    for (const auto* package : {"onnxruntime", "onnxruntime_gpu"}) {
      if (!dist_version(name, package).empty()) install.onnxruntime.emplace_back(package);
    }
  }
  install.llama_cpp = llama_back_end(files, install.site);
}

/// NVIDIA's libraries that a wheel brings: in packages of their own under nvidia/, in older wheels in torch/lib itself.
void read_bundled(Files& files, model::TorchInstall& install) {
  constexpr std::array kNames{"libcudnn", "libnccl", "libnvJitLink", "libcublas", "libcudart"};
  std::vector<std::string> folders{install.site + "/torch/lib"};
  for (const auto& name : files.list(install.site + "/nvidia").value_or(std::vector<std::string>{})) {
    folders.push_back(install.site + "/nvidia/" + name + "/lib");
  }
  for (const auto& folder : folders) {
    for (const auto& name : files.list(folder).value_or(std::vector<std::string>{})) {
      const auto starts = [&](const char* known) { return name.starts_with(known); };
      if (std::ranges::any_of(kNames, starts)) install.bundled.push_back(folder + "/" + name);
    }
  }
}

/// conda-meta/pytorch-2.4.0-cpu_mkl_py311h….json: the build string says which variant the solver chose.
std::string conda_build(Files& files, const std::string& prefix) {
  const auto names = files.list(prefix + "/conda-meta", "pytorch-");
  if (!names) return {};
  for (const auto& name : *names) {
    if (!name.starts_with("pytorch-") || !name.ends_with(".json")) continue;
    const auto stem = std::string_view(name).substr(8, name.size() - 8 - 5);
    const auto dash = stem.find('-');
    if (dash != std::string_view::npos && stem.front() >= '0' && stem.front() <= '9')
      return std::string(stem.substr(dash + 1));
  }
  return {};
}

bool read_install(Files& files, const std::string& site, const std::string& interpreter, model::Torch& torch) {
  const auto version = files.read(site + "/torch/version.py");
  if (!version) return false;
  const auto known = [&](const auto& install) { return install.site == site; };
  if (std::ranges::any_of(torch.installs, known)) return true;
  model::TorchInstall install;
  install.site = site;
  install.interpreter = interpreter;
  install.version = assigned(*version, "__version__");
  install.cuda = assigned(*version, "cuda");
  install.cuda_library = files.exists(site + "/torch/lib/libtorch_cuda.so");
  const auto prefix = std::string(base::folder_of(base::folder_of(base::folder_of(site))));
  install.conda_build = conda_build(files, prefix);
  read_neighbours(files, install);
  read_bundled(files, install);
  torch.installs.push_back(std::move(install));
  return true;
}

void read_prefix(Files& files, const std::string& prefix, const std::string& interpreter, model::Torch& torch) {
  for (const auto& folder : package_folders(files, prefix)) read_install(files, folder, interpreter, torch);
}

/// The torch of the environment that an interpreter belongs to: PREFIX/bin/python.
void read_environment(Files& files, const std::string& interpreter, model::Torch& torch) {
  if (!interpreter.starts_with('/')) return;
  read_prefix(files, std::string(base::folder_of(base::folder_of(interpreter))), interpreter, torch);
}

void find_installs(Files& files, const base::Environment& environment, model::Torch& torch) {
  read_environment(files, torch.interpreter, torch);
  read_environment(files, torch.shell_interpreter, torch);
  const auto python_path = variable(environment, "PYTHONPATH");
  for (auto folder : base::split(python_path, ':')) {
    if (folder.starts_with('/')) read_install(files, base::normal_path(folder), torch.interpreter, torch);
  }
  const auto home = variable(environment, "HOME");
  if (!home.empty()) read_prefix(files, home + "/.local", "", torch);
  for (const auto* prefix : {"/usr/local", "/usr"})
    read_prefix(files, prefix, std::string(prefix) + "/bin/python3", torch);
}

/// A LibTorch unpacked without Python: named by LIBTORCH or Torch_DIR, or lying in the usual places.
void find_libtorch(Files& files, const base::Environment& environment, model::Torch& torch) {
  std::vector<std::string> folders{variable(environment, "LIBTORCH"), "/opt/libtorch", "/usr/local/libtorch",
                                   variable(environment, "HOME") + "/libtorch"};
  const auto torch_dir = variable(environment, "Torch_DIR");
  const auto share = torch_dir.find("/share/cmake/Torch");
  if (share != std::string::npos) folders.push_back(torch_dir.substr(0, share));
  for (const auto& folder : folders) {
    if (!folder.starts_with('/') || !files.exists(folder + "/lib/libtorch.so")) continue;
    model::TorchInstall install;
    install.site = folder;
    install.version = files.read_line(folder + "/build-version").value_or("");
    install.cuda_library = files.exists(folder + "/lib/libtorch_cuda.so");
    const auto tag = install.version.find("+cu");
    if (tag != std::string::npos && install.version.size() >= tag + 6) {
      install.cuda = install.version.substr(tag + 3, 2) + "." + install.version.substr(tag + 5);
    }
    torch.installs.push_back(std::move(install));
  }
}

/// The kernels that Jupyter offers: a notebook may run another interpreter than the shell.
void find_kernels(Files& files, const base::Environment& environment, model::Torch& torch) {
  const auto home = variable(environment, "HOME");
  for (const auto& root : {home + "/.local/share/jupyter/kernels", std::string("/usr/local/share/jupyter/kernels")}) {
    const auto names = files.list(root);
    for (const auto& name : names.value_or(std::vector<std::string>{})) {
      const auto path = root + "/" + name + "/kernel.json";
      const auto text = files.read(path);
      if (!text) continue;
      const auto json = model::Json::parse(*text, nullptr, false);
      if (!json.is_object() || !json.contains("argv") || !json["argv"].is_array() || json["argv"].empty()) continue;
      const auto& first = json["argv"][0];
      if (!first.is_string()) continue;
      torch.kernels.push_back({path, first.get<std::string>()});
      read_environment(files, torch.kernels.back().interpreter, torch);
    }
  }
}

}  // namespace

model::Torch probe_torch(base::Files& files, const Target& target, const base::Environment& environment,
                         const base::Environment& shell, const model::Process* process) {
  model::Torch torch;
  choose_interpreter(files, target, environment, shell, process, torch);
  find_installs(files, environment, torch);
  find_libtorch(files, environment, torch);
  find_kernels(files, environment, torch);
  return torch;
}

}  // namespace fullwatt::doctor
