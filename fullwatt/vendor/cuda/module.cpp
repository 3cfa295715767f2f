#include "fullwatt/vendor/cuda/module.hpp"

namespace fullwatt::vendor::cuda {
namespace {

std::unexpected<base::Error> failed(const std::string& call, abi::Result code) {
  return base::fail(base::Error::Kind::unavailable, call + ": CUDA error " + std::to_string(code));
}

std::unexpected<base::Error> missing(const char* call) {
  return base::fail(base::Error::Kind::unavailable, std::string("libcuda has no ") + call);
}

}  // namespace

base::Result<Module> Module::load(const std::string& image, const std::string& name) {
  auto library = base::Library::load(name);
  if (!library) return std::unexpected(library.error());
  Module module(*std::move(library));
  auto* const load = module.library_.find<abi::ModuleLoadData>("cuModuleLoadData");
  if (load == nullptr) return missing("cuModuleLoadData");
  module.launch_ = module.library_.find<abi::LaunchKernel>("cuLaunchKernel");
  if (module.launch_ == nullptr) return missing("cuLaunchKernel");
  if (const auto code = load(&module.module_, image.c_str()); code != 0) return failed("cuModuleLoadData", code);
  return module;
}

base::Result<abi::Function> Module::function(const char* name) const {
  auto* const get = library_.find<abi::ModuleGetFunction>("cuModuleGetFunction");
  if (get == nullptr) return missing("cuModuleGetFunction");
  abi::Function found = nullptr;
  if (const auto code = get(&found, module_, name); code != 0)
    return failed(std::string("cuModuleGetFunction of ") + name, code);
  return found;
}

base::Result<void> Module::launch(abi::Function function, const Grid& grid, abi::Stream stream,
                                  void** arguments) const {
  const auto code = launch_(function, grid.x, grid.y, 1, grid.threads, 1, 1, 0, stream, arguments, nullptr);
  if (code != 0) return failed("cuLaunchKernel", code);
  return {};
}

}  // namespace fullwatt::vendor::cuda
